/*
 * What the one file of a release begins with: unpacks the interpreter and the packages after it once, then becomes the command.
 *
 * The file is this program, the contents of all files (one deflate stream), the list of files, and a tail that says where they are
 * (scripts/one_file.py writes it). They are unpacked into a directory that is named after their SHA-256, below the first of these places
 * that can be written to and whose programs may be started: SNAPREBUILD_CACHE_DIR (then no other), XDG_CACHE_HOME, HOME/.cache, /var/tmp, /tmp.
 * The place must belong to the user alone, or it is refused. At each start every file is looked up, with its size: whatever
 * cleans old files out of temporary directories may have taken some. Then this process becomes the interpreter: there is no second
 * process that signals would have to pass.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#define REFUSED 3
#define STORAGE_FAILED 5
#define KEY_SIZE 32

/* As struct.pack("<QQQQQ32s24s16s") writes it. */
struct tail {
  uint64_t contents_at, contents_size, list_at, list_size, list_crc; /* CRC-32 of zlib; the contents end with a sum of their own */
  char key[KEY_SIZE];       /* hexadecimal, the first half of a SHA-256 */
  char command[24];         /* path of the command, below the directory */
  char magic[16];
} __attribute__((packed));

/* "<IIQ", then the path and a zero. Mode 0 means a directory. */
struct entry {
  uint32_t mode, path_size;
  uint64_t size;
} __attribute__((packed));

static const char MAGIC[16] = "snaprebuild one";
static const unsigned char *file;
static struct tail tail;
static char why_not[4096];

static void fail(int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("snaprebuild: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(code);
}

/* Remembers why a place cannot be used; returns -1. */
static int unfit(const char *place, const char *reason) {
  size_t used = strlen(why_not);
  snprintf(why_not + used, sizeof why_not - used, "\n  %s: %s", place, reason);
  return -1;
}

static void map_own_file(void) {
  struct stat status;
  int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const char *named = (const char *)getauxval(AT_EXECFN);
  if (own < 0 && named) own = open(named, O_RDONLY | O_CLOEXEC); /* there is no /proc */
  if (own < 0 || fstat(own, &status) < 0) fail(STORAGE_FAILED, "/proc/self/exe: %s", strerror(errno));
  uint64_t size = status.st_size;
  file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, own, 0);
  if (file == MAP_FAILED) fail(STORAGE_FAILED, "/proc/self/exe: %s", strerror(errno));
  close(own);
  if (size >= sizeof tail) memcpy(&tail, file + size - sizeof tail, sizeof tail);
  uint64_t end = size - sizeof tail;
  if (memcmp(tail.magic, MAGIC, sizeof MAGIC) || tail.list_size > end || tail.list_at != end - tail.list_size ||
      tail.contents_size > tail.list_at || tail.contents_at != tail.list_at - tail.contents_size)
    fail(STORAGE_FAILED, "this file is not whole: compare it with SHA256SUMS");
  if (crc32(0, file + tail.list_at, tail.list_size) != tail.list_crc) fail(STORAGE_FAILED, "this file is damaged: compare it with SHA256SUMS");
}

/* The entry at *at, which moves on; NULL after the last one. */
static const struct entry *next(uint64_t *at, const char **path) {
  const struct entry *entry = (const void *)(file + tail.list_at + *at);
  if (*at >= tail.list_size) return NULL;
  *path = (const char *)(entry + 1);
  *at += sizeof *entry + entry->path_size + 1;
  return entry;
}

/* A directory of ours in which programs may be started, or -1. */
static int open_place(const char *place, int make_parent) {
  struct stat status;
  struct statvfs system;
  if (make_parent) {
    char parent[4096];
    snprintf(parent, sizeof parent, "%s", place);
    *strrchr(parent, '/') = 0;
    mkdir(parent, 0700);
  }
  if (mkdir(place, 0700) < 0 && errno != EEXIST) return unfit(place, strerror(errno));
  int directory = open(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return unfit(place, strerror(errno));
  const char *reason = NULL;
  if (fstat(directory, &status) < 0 || fstatvfs(directory, &system) < 0) reason = strerror(errno);
  else if (status.st_uid != geteuid()) reason = "belongs to another user";
  else if (status.st_mode & 022) reason = "others may write there";
  else if (system.f_flag & ST_NOEXEC) reason = "is mounted noexec, and programs are started from there";
  if (reason == NULL) return directory;
  close(directory);
  return unfit(place, reason);
}

static int is_whole(int directory) {
  const char *path;
  const struct entry *entry;
  for (uint64_t at = 0; (entry = next(&at, &path));) {
    struct stat status;
    if (fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) < 0) return 0;
    if (entry->mode ? !S_ISREG(status.st_mode) || (uint64_t)status.st_size != entry->size : !S_ISDIR(status.st_mode)) return 0;
  }
  return 1;
}

/* Inflates the next bytes of the stream into a file. Returns 0, or -1 with errno. */
static int write_contents(z_stream *stream, int to, uint64_t size) {
  static unsigned char buffer[1 << 18];
  while (size) {
    stream->next_out = buffer;
    stream->avail_out = size < sizeof buffer ? size : sizeof buffer;
    uInt wanted = stream->avail_out;
    while (stream->avail_out) {
      int outcome = inflate(stream, Z_NO_FLUSH);
      if (outcome != Z_OK && outcome != Z_STREAM_END) return errno = EBADMSG, -1;
      if (outcome == Z_STREAM_END && stream->avail_out) return errno = EBADMSG, -1;
    }
    for (uInt done = 0; done < wanted;) {
      ssize_t written = write(to, buffer + done, wanted - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return -1;
      done += written;
    }
    size -= wanted;
  }
  return 0;
}

static int unpack(int directory) {
  const char *path;
  const struct entry *entry;
  z_stream stream = {.next_in = (unsigned char *)file + tail.contents_at, .avail_in = tail.contents_size};
  if (inflateInit(&stream) != Z_OK) return errno = ENOMEM, -1;
  for (uint64_t at = 0; (entry = next(&at, &path));) {
    if (entry->mode == 0) {
      if (mkdirat(directory, path, 0700) < 0) return -1;
      continue;
    }
    int to = openat(directory, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, entry->mode);
    if (to < 0) return -1;
    if (write_contents(&stream, to, entry->size) < 0) return -1;
    if (close(to) < 0) return -1;
  }
  /* The sum of the contents follows the last of them: only reading up to it shows that a byte was another. */
  unsigned char behind;
  stream.next_out = &behind;
  stream.avail_out = 1;
  if (inflate(&stream, Z_FINISH) != Z_STREAM_END || stream.avail_out == 0 || stream.avail_in) return errno = EBADMSG, -1;
  inflateEnd(&stream);
  return syncfs(directory); /* before it gets its name: after a power failure it is whole or absent */
}

static void remove_tree(int parent, const char *name) {
  int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *listing = directory < 0 ? NULL : fdopendir(directory);
  struct dirent *each;
  while (listing && (each = readdir(listing))) {
    if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, "..")) continue;
    if (unlinkat(directory, each->d_name, 0) < 0 && errno == EISDIR) remove_tree(directory, each->d_name);
  }
  if (listing) closedir(listing);
  unlinkat(parent, name, AT_REMOVEDIR);
}

/* Makes the directory of this release whole; another process may be doing the same. Returns 0, or -1. */
static int provide(int place, const char *name, const char *shown) {
  char fresh[128], old[128];
  snprintf(fresh, sizeof fresh, ".new-%s-%d", name, getpid());
  snprintf(old, sizeof old, ".old-%s-%d", name, getpid());
  for (int attempt = 0; attempt < 10; attempt++) {
    int directory = openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory >= 0) {
      int whole = is_whole(directory);
      close(directory);
      if (whole) return 0;
      if (renameat(place, name, place, old) == 0) remove_tree(place, old);
    }
    remove_tree(place, fresh); /* of a process of the same number that was killed */
    if (mkdirat(place, fresh, 0700) < 0) return unfit(shown, strerror(errno));
    int made = openat(place, fresh, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (made < 0 || unpack(made) < 0) {
      int error = errno;
      remove_tree(place, fresh);
      if (error == EBADMSG) fail(STORAGE_FAILED, "this file is damaged: compare it with SHA256SUMS");
      return unfit(shown, strerror(error));
    }
    close(made);
    if (renameat(place, fresh, place, name) == 0) continue; /* is looked at once more */
    remove_tree(place, fresh);
  }
  return unfit(shown, "what is unpacked there does not stay whole");
}

/* Unpacks below a place if need be, and becomes the command. Returns where that place is unfit. */
static void run_from(const char *place, int make_parent, char **arguments) {
  char command[4600];
  int directory = open_place(place, make_parent);
  if (directory < 0) return;
  char name[KEY_SIZE + 1] = {0};
  memcpy(name, tail.key, KEY_SIZE);
  if (provide(directory, name, place) < 0) {
    close(directory);
    return;
  }
  close(directory);
  snprintf(command, sizeof command, "%s/%s/%.24s", place, name, tail.command);
  execv(command, arguments);
  unfit(place, strerror(errno));
}

static void run_below(const char *root, const char *end, int make_parent, char **arguments) {
  char place[4096];
  if (snprintf(place, sizeof place, "%s%s", root, end) < (int)sizeof place) run_from(place, make_parent, arguments);
}

int main(int count __attribute__((unused)), char **arguments) {
  char own[64];
  struct stat status;
  map_own_file();
  snprintf(own, sizeof own, "/snaprebuild-%u", geteuid());
  const char *named = getenv("SNAPREBUILD_CACHE_DIR"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (named && *named) {
    if (*named != '/') fail(2, "SNAPREBUILD_CACHE_DIR: expected an absolute path, found '%s'", named);
    run_below(named, "", 0, arguments);
  } else {
    if (cache && *cache == '/') run_below(cache, "/snaprebuild", 1, arguments);
    /* After sudo, HOME may be that of somebody else. */
    if (home && *home == '/' && stat(home, &status) == 0 && status.st_uid == geteuid()) run_below(home, "/.cache/snaprebuild", 1, arguments);
    run_below("/var/tmp", own, 0, arguments);
    run_below("/tmp", own, 0, arguments);
  }
  fail(REFUSED, "finds no place to unpack itself into (SNAPREBUILD_CACHE_DIR=DIR names one):%s", why_not);
}
