/*
 * What the one file of a release begins with: unpacks the interpreter and the packages after it once, then becomes the command.
 *
 * The file is this program, the contents of all files (one deflate stream), the list of files, and a tail that says where they are
 * (scripts/release/one_file.py writes it).
 *
 * Where. They are unpacked into a directory that is named after their SHA-256, the tree, below the first of these places that can be written
 * to and whose programs may be started: SNAPREBUILD_CACHE_DIR (then no other), XDG_CACHE_HOME, HOME/.cache, /var/tmp, /tmp. The place must
 * belong to the user alone, and must not be in a log directory of a broker (one_file_broker.h), or it is refused before anything is made.
 *
 * Whether it is whole. Next to the tree is its record, TREE.used: the id of the boot, and a sum of inode, change time, size and mode of each
 * file, as they were when all contents were last known to be right. Every start takes that sum (2200 calls of fstatat, 5 ms). Where it is
 * another, or the system was booted since, the CRC-32 of every file is compared with the list (105 MB: a tenth of a second with a warm
 * cache, which is too much for each start), and the tree is unpacked anew if one differs. No write by way of the file system leaves the
 * change time as it was, and a power failure is followed by a boot. What a disk loses by itself is found after the next boot. Without /proc
 * there is no id of the boot, and contents are compared at each start.
 *
 * Who uses it. Each process that was started from a tree holds a shared lock (flock) on its record, as long as it lives. The next start of any
 * release removes the other trees that have a record and no holder, and what killed processes had begun to unpack (.new-*, each locked by
 * the one who makes it) or to remove (.old-*). Where a file system has no such locks nothing of others is removed.
 *
 * `before-start` and `install`. A child does all of that, because neither a crash, a file system that does not answer nor a full disk may
 * keep a broker down: where it fails, or does not end before --deadline, this process becomes CMD (one_file_command.h). When the process
 * began and which descriptor has the lock is handed on to the command in SNAPREBUILD_LAUNCHED (snaprebuild/cli/loading.py).
 *
 * Then this process becomes the interpreter: there is no second process that signals would have to pass.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include "one_file_broker.h"
#include "one_file_command.h"

#define USAGE 2
#define REFUSED 3
#define STORAGE_FAILED 5
#define KEY_SIZE 32
#define PLACES_MAX 4
#define PROPERTIES_MAX 16
#define BOOT_ID_SIZE 36
#define RECORD_SIZE (BOOT_ID_SIZE + 10) /* a blank, eight hexadecimal digits and the end of the line follow the id */
#define PAUSE_MS 10
#define REMOVAL_MS 2000   /* how long to wait for one who is removing the tree that is wanted */
#define UNPACKING_MS 60000 /* how long to wait for one who unpacks the same; it may have been stopped */
#define LEAST_MS 1000     /* even for a deadline of 0: a tree that is there is found in less */
#define KILLED_MS 500     /* how long to wait until a killed child has ended */

/* As struct.pack("<QQQQQ32s24s16s") writes it. */
struct tail {
  uint64_t contents_at, contents_size, list_at, list_size, list_crc; /* CRC-32 of zlib; the contents end with a sum of their own */
  char key[KEY_SIZE];       /* hexadecimal, the first half of a SHA-256 */
  char command[24];         /* path of the command, below the directory */
  char magic[16];
} __attribute__((packed));

/* "<IIIQ", then the path and a zero. Mode 0 means a directory. */
struct entry {
  uint32_t mode, path_size, crc;
  uint64_t size;
} __attribute__((packed));

struct place {
  char path[PATH_MAX];
  int make_parent;
  const char *variable; /* that names this place and no other, or NULL */
};

/* What is ready to be started. */
struct ready {
  int place; /* its number */
  char command[PATH_MAX];
};

static const char MAGIC[16] = "snaprebuild one";
static const unsigned char *file;
static struct tail tail;
static char why_not[PLACES_MAX * 4 * PATH_MAX];
static unsigned char buffer[1 << 18];

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pause_briefly(void) {
  struct timespec pause = {0, PAUSE_MS * 1000000};
  nanosleep(&pause, NULL);
}

static void say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("snaprebuild: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

/* Remembers why a place cannot be used; returns -1. */
static int unfit(const char *place, const char *reason) {
  size_t used = strlen(why_not);
  if (snprintf(why_not + used, sizeof why_not - used, "\n  %s: %s", place, reason) < 0) why_not[used] = 0;
  return -1;
}

/* --- the file itself ------------------------------------------------------------------------------------------------------------ */

/* Returns 0, or the exit code of a failure. */
static int map_own_file(void) {
  struct stat status;
  int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const char *named = (const char *)getauxval(AT_EXECFN);
  if (own < 0 && named) own = open(named, O_RDONLY | O_CLOEXEC); /* there is no /proc */
  if (own < 0 || fstat(own, &status) < 0) {
    say("/proc/self/exe: %s", strerror(errno));
    return STORAGE_FAILED;
  }
  uint64_t size = status.st_size;
  file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, own, 0);
  close(own);
  if (file == MAP_FAILED) {
    say("/proc/self/exe: %s", strerror(errno));
    return STORAGE_FAILED;
  }
  if (size >= sizeof tail) memcpy(&tail, file + size - sizeof tail, sizeof tail);
  uint64_t end = size - sizeof tail;
  if (memcmp(tail.magic, MAGIC, sizeof MAGIC) || tail.list_size > end || tail.list_at != end - tail.list_size ||
      tail.contents_size > tail.list_at || tail.contents_at != tail.list_at - tail.contents_size) {
    say("this file is not whole: compare it with SHA256SUMS");
    return STORAGE_FAILED;
  }
  if (crc32(0, file + tail.list_at, tail.list_size) != tail.list_crc) {
    say("this file is damaged: compare it with SHA256SUMS");
    return STORAGE_FAILED;
  }
  return 0;
}

/* The entry at *at, which moves on; NULL after the last one. */
static const struct entry *next(uint64_t *at, const char **path) {
  const struct entry *entry = (const void *)(file + tail.list_at + *at);
  if (*at >= tail.list_size) return NULL;
  *path = (const char *)(entry + 1);
  *at += sizeof *entry + entry->path_size + 1;
  return entry;
}

/* --- places --------------------------------------------------------------------------------------------------------------------- */

static void add_place(struct place *places, int *count, const char *root, const char *end, int make_parent) {
  struct place *added = &places[*count];
  if (snprintf(added->path, sizeof added->path, "%s%s", root, end) >= (int)sizeof added->path) return;
  added->make_parent = make_parent;
  added->variable = NULL;
  (*count)++;
}

/* The places in the order in which they are tried. Returns their count, or -1 after an error of usage. */
static int list_places(struct place *places) {
  char own[64];
  struct stat status;
  int count = 0;
  const char *named = getenv("SNAPREBUILD_CACHE_DIR"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  snprintf(own, sizeof own, "/snaprebuild-%u", geteuid());
  if (named && *named) {
    if (*named != '/') {
      say("SNAPREBUILD_CACHE_DIR: expected an absolute path, found '%s'", named);
      return -1;
    }
    add_place(places, &count, named, "", 0);
    places[0].variable = "SNAPREBUILD_CACHE_DIR";
    return count;
  }
  if (cache && *cache == '/') add_place(places, &count, cache, "/snaprebuild", 1);
  /* After sudo, HOME may be that of somebody else. */
  if (home && *home == '/' && stat(home, &status) == 0 && status.st_uid == geteuid()) add_place(places, &count, home, "/.cache/snaprebuild", 1);
  add_place(places, &count, "/var/tmp", own, 0);
  add_place(places, &count, "/tmp", own, 0);
  return count;
}

/* The files that --server-properties names, with NULL at the end. */
static void list_properties(char **arguments, char **properties) {
  int count = 0;
  char **end = arguments;
  while (*end && strcmp(*end, "--") != 0) end++;
  for (char **word = arguments; word < end && count < PROPERTIES_MAX; word++) {
    const char *named = value_of("--server-properties", word, end);
    if (named) properties[count++] = (char *)named;
  }
  properties[count] = NULL;
}

/* A directory of ours in which programs may be started, or -1. */
static int open_place(const struct place *place, char **properties) {
  struct stat status;
  struct statvfs system;
  char log_directory[PATH_MAX], reason_of_broker[PATH_MAX + 80];
  if (is_in_log_directory(place->path, properties, log_directory)) {
    snprintf(reason_of_broker, sizeof reason_of_broker, "is in %s, a log directory of a broker, where only the broker may create files", log_directory);
    return unfit(place->path, reason_of_broker);
  }
  if (place->make_parent) {
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", place->path);
    *strrchr(parent, '/') = 0;
    mkdir(parent, 0700);
  }
  if (mkdir(place->path, 0700) < 0 && errno != EEXIST) return unfit(place->path, strerror(errno));
  int directory = open(place->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return unfit(place->path, strerror(errno));
  const char *reason = NULL;
  if (fstat(directory, &status) < 0 || fstatvfs(directory, &system) < 0) reason = strerror(errno);
  else if (status.st_uid != geteuid()) reason = "belongs to another user";
  else if (status.st_mode & 022) reason = "others may write there";
  else if (system.f_flag & ST_NOEXEC) reason = "is mounted noexec, and programs are started from there";
  if (reason == NULL) return directory;
  close(directory);
  return unfit(place->path, reason);
}

/* --- the record of a tree --------------------------------------------------------------------------------------------------------- */

static int is_same_file(int descriptor, int parent, const char *name) {
  struct stat own, named;
  if (fstat(descriptor, &own) < 0 || fstatat(parent, name, &named, AT_SYMLINK_NOFOLLOW) < 0) return 0;
  return own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

/* Opens the record of a tree and takes a shared lock on it: from now on nobody removes the tree. -1 where there can be none. */
static int open_record(int place, const char *record) {
  for (int waited = 0; waited < REMOVAL_MS; waited += PAUSE_MS) {
    errno = 0; /* below it is read after a success, too */
    int opened = openat(place, record, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (opened < 0) opened = openat(place, record, O_RDONLY | O_NOFOLLOW | O_CLOEXEC); /* of a place that is mounted read-only */
    if (opened < 0) return -1;
    if (flock(opened, LOCK_SH | LOCK_NB) < 0 && errno != EWOULDBLOCK) return opened; /* there are no locks here */
    if (errno != EWOULDBLOCK && is_same_file(opened, place, record)) return opened;
    close(opened);
    pause_briefly();
  }
  return -1;
}

/* The id of the boot into `text`. Returns whether there is one. */
static int read_boot_id(char *text) {
  int from = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (from < 0) return 0;
  ssize_t size = read(from, text, BOOT_ID_SIZE);
  close(from);
  return size == BOOT_ID_SIZE;
}

static int write_wanted_record(char *wanted, uint32_t sum) {
  char boot[BOOT_ID_SIZE + 1] = {0};
  if (!read_boot_id(boot)) return 0;
  snprintf(wanted, RECORD_SIZE + 1, "%s %08x\n", boot, sum);
  return 1;
}

static int is_recorded(int record, uint32_t sum) {
  char wanted[RECORD_SIZE + 1], found[RECORD_SIZE + 1] = {0};
  if (!write_wanted_record(wanted, sum)) return 0;
  return pread(record, found, sizeof found, 0) == RECORD_SIZE && memcmp(wanted, found, RECORD_SIZE) == 0;
}

/* Without it, contents are compared at the next start again. */
static void write_record(int record, uint32_t sum) {
  char wanted[RECORD_SIZE + 1];
  if (!write_wanted_record(wanted, sum)) return;
  if (ftruncate(record, 0) < 0 || pwrite(record, wanted, RECORD_SIZE, 0) < 0) return;
}

/* Sum of what a change of any file changes. Returns 0, or -1 where a file is absent or another. */
static int sum_of_files(int directory, uint32_t *sum) {
  const char *path;
  const struct entry *entry;
  *sum = crc32(0, NULL, 0);
  for (uint64_t at = 0; (entry = next(&at, &path));) {
    struct stat status;
    if (fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) < 0) return -1;
    if (entry->mode == 0) {
      if (!S_ISDIR(status.st_mode)) return -1;
      continue;
    }
    if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size != entry->size || (status.st_mode & 07777) != entry->mode) return -1;
    uint64_t facts[] = {status.st_ino, status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
    *sum = crc32(*sum, (const unsigned char *)facts, sizeof facts);
  }
  return 0;
}

static int has_contents(int directory, const char *path, const struct entry *entry) {
  uint64_t size = 0;
  uint32_t sum = crc32(0, NULL, 0);
  int from = openat(directory, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (from < 0) return 0;
  ssize_t got;
  while ((got = read(from, buffer, sizeof buffer)) > 0) {
    sum = crc32(sum, buffer, got);
    size += got;
  }
  close(from);
  return got == 0 && size == entry->size && sum == entry->crc;
}

static int is_whole(int directory, int record) {
  const char *path;
  const struct entry *entry;
  uint32_t sum;
  if (sum_of_files(directory, &sum) < 0) return 0;
  if (is_recorded(record, sum)) return 1;
  for (uint64_t at = 0; (entry = next(&at, &path));)
    if (entry->mode && !has_contents(directory, path, entry)) return 0;
  write_record(record, sum);
  return 1;
}

/* --- unpacking -------------------------------------------------------------------------------------------------------------------- */

static int write_all(int to, const unsigned char *from, size_t size) {
  while (size) {
    ssize_t written = write(to, from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return -1;
    from += written;
    size -= written;
  }
  return 0;
}

/* Inflates the next bytes of the stream into a file. Returns 0, or -1 with errno. */
static int write_contents(z_stream *stream, int to, const struct entry *entry) {
  uint64_t left = entry->size;
  uint32_t sum = crc32(0, NULL, 0);
  while (left) {
    stream->next_out = buffer;
    stream->avail_out = left < sizeof buffer ? left : sizeof buffer;
    uInt wanted = stream->avail_out;
    while (stream->avail_out) {
      int outcome = inflate(stream, Z_NO_FLUSH);
      if (outcome != Z_OK && outcome != Z_STREAM_END) return errno = EBADMSG, -1;
      if (outcome == Z_STREAM_END && stream->avail_out) return errno = EBADMSG, -1;
    }
    if (write_all(to, buffer, wanted) < 0) return -1;
    sum = crc32(sum, buffer, wanted);
    left -= wanted;
  }
  return sum == entry->crc ? 0 : (errno = EBADMSG, -1);
}

static int sync_one(int directory, const char *path) {
  int opened = openat(directory, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return -1;
  int outcome = fsync(opened);
  int error = errno;
  close(opened);
  errno = error;
  return outcome;
}

/* The files, then the directories: syncfs would write out what a broker has on the same disk, which may be gigabytes. */
static int sync_tree(int directory) {
  const char *path;
  const struct entry *entry;
  for (int of_directories = 0; of_directories < 2; of_directories++)
    for (uint64_t at = 0; (entry = next(&at, &path));)
      if ((entry->mode == 0) == of_directories && sync_one(directory, path) < 0) return -1;
  return fsync(directory);
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
    if (write_contents(&stream, to, entry) < 0) return -1;
    sync_file_range(to, 0, 0, SYNC_FILE_RANGE_WRITE); /* only begins: waiting for each file in turn would take far longer */
    if (close(to) < 0) return -1;
  }
  /* The sum of the contents follows the last of them: only reading up to it shows that a byte was another. */
  unsigned char behind;
  stream.next_out = &behind;
  stream.avail_out = 1;
  if (inflate(&stream, Z_FINISH) != Z_STREAM_END || stream.avail_out == 0 || stream.avail_in) return errno = EBADMSG, -1;
  inflateEnd(&stream);
  return sync_tree(directory);
}

static void remove_tree(int parent, const char *name) {
  if (unlinkat(parent, name, 0) == 0 || errno != EISDIR) return;
  int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *listing = directory < 0 ? NULL : fdopendir(directory);
  struct dirent *each;
  while (listing && (each = readdir(listing))) {
    if (strcmp(each->d_name, ".") != 0 && strcmp(each->d_name, "..") != 0) remove_tree(directory, each->d_name);
  }
  if (listing) closedir(listing);
  unlinkat(parent, name, AT_REMOVEDIR);
}

/* --- what others left ------------------------------------------------------------------------------------------------------------- */

/* Whether a name is what we make of a key: `before` is ".new-" or the like, and `after` what follows the key, "-" with a number behind it. */
static int is_name_of_ours(const char *name, const char *before, const char *after) {
  size_t size = strlen(before);
  if (strncmp(name, before, size) != 0 || strspn(name + size, "0123456789abcdef") != KEY_SIZE) return 0;
  const char *rest = name + size + KEY_SIZE;
  if (*after != '-') return strcmp(rest, after) == 0;
  return *rest == '-' && rest[1] && rest[1 + strspn(rest + 1, "0123456789")] == 0;
}

/* Removes what a process that is gone had begun to unpack. */
static void remove_begun(int place, const char *name) {
  int begun = openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (begun < 0) return;
  if (flock(begun, LOCK_EX | LOCK_NB) == 0) remove_tree(place, name);
  close(begun);
}

/* Removes a tree that no process uses, with its record. */
static void remove_unused(int place, const char *record) {
  char name[KEY_SIZE + 1] = {0}, old[64];
  memcpy(name, record, KEY_SIZE);
  snprintf(old, sizeof old, ".old-%s-%d", name, getpid());
  int opened = openat(place, record, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return;
  if (flock(opened, LOCK_EX | LOCK_NB) == 0 && is_same_file(opened, place, record)) {
    if (renameat(place, name, place, old) == 0 || errno == ENOENT) unlinkat(place, record, 0);
  }
  close(opened);
  remove_tree(place, old);
}

/* Removes what killed processes left, and trees of other releases. Only names that we give, and nothing that a process holds. */
static void tidy(int place, const char *own_record) {
  int again = openat(place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *listing = again < 0 ? NULL : fdopendir(again);
  struct dirent *each;
  while (listing && (each = readdir(listing))) {
    if (is_name_of_ours(each->d_name, ".new-", "-")) remove_begun(place, each->d_name);
    else if (is_name_of_ours(each->d_name, ".old-", "-")) remove_tree(place, each->d_name);
    else if (is_name_of_ours(each->d_name, "", ".used") && strcmp(each->d_name, own_record) != 0) remove_unused(place, each->d_name);
  }
  if (listing) closedir(listing);
}

/* --- the tree --------------------------------------------------------------------------------------------------------------------- */

/* A locked directory of our own to unpack into, or -1 with errno; `name` is its name. */
static int make_begun(int place, const char *name) {
  for (int attempt = 0; attempt < 10; attempt++) {
    remove_tree(place, name); /* of a process of the same number that was killed */
    if (mkdirat(place, name, 0700) < 0) return -1;
    int made = openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (made < 0 && errno != ENOENT) return -1;
    int is_locked = made >= 0 && (flock(made, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
    if (is_locked && is_same_file(made, place, name)) return made;
    if (made >= 0) close(made); /* somebody who tidies up was faster */
    pause_briefly();
  }
  return errno = EAGAIN, -1;
}

/* Gives what was unpacked its name. What has the name is replaced in one step, so that it is never absent for those who use it. */
static int give_name(int place, const char *begun, const char *name) {
  char old[64];
  if (renameat(place, begun, place, name) == 0) return 0;
  if (renameat2(place, begun, place, name, RENAME_EXCHANGE) == 0) {
    remove_tree(place, begun);
    return 0;
  }
  snprintf(old, sizeof old, ".old-%s-%d", name, getpid());
  renameat(place, name, place, old);
  int outcome = renameat(place, begun, place, name);
  int error = errno;
  remove_tree(place, old);
  errno = error;
  return outcome;
}

/* Unpacks the tree and gives it its name. Returns 0, or -1 with errno. */
static int make_tree(int place, const char *name, int record) {
  char begun[64];
  uint32_t sum;
  snprintf(begun, sizeof begun, ".new-%s-%d", name, getpid());
  int made = make_begun(place, begun);
  if (made < 0) return -1;
  int outcome = unpack(made);
  if (outcome == 0) outcome = sum_of_files(made, &sum);
  if (outcome == 0) outcome = give_name(place, begun, name);
  if (outcome == 0) {
    fsync(place);
    write_record(record, sum);
  }
  int error = errno;
  if (outcome < 0) remove_tree(place, begun);
  close(made);
  errno = error;
  return outcome;
}

static int is_there(int place, const char *name, int record) {
  int directory = openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return 0;
  int whole = is_whole(directory, record);
  close(directory);
  return whole;
}

/* One process unpacks at a time, as long as that does not take too long. */
static void wait_for_turn(int place) {
  for (int waited = 0; waited < UNPACKING_MS; waited += PAUSE_MS) {
    if (flock(place, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    pause_briefly();
  }
}

/* Makes the tree of this release whole. Returns 0, or -1 with errno. */
static int provide(int place, const char *name, int record) {
  if (is_there(place, name, record)) return 0;
  wait_for_turn(place);
  if (is_there(place, name, record)) return 0;
  return make_tree(place, name, record);
}

/* Provides the tree at a place. Returns the descriptor of its record, with the lock; -1 where the place is unfit; -2 where the file is damaged. */
static int provide_at(const struct place *place, char **properties, char *command) {
  char name[KEY_SIZE + 1] = {0}, record[KEY_SIZE + 8];
  memcpy(name, tail.key, KEY_SIZE);
  snprintf(record, sizeof record, "%s.used", name);
  if (snprintf(command, PATH_MAX, "%s/%s/%.24s", place->path, name, tail.command) >= PATH_MAX) return unfit(place->path, strerror(ENAMETOOLONG));
  int directory = open_place(place, properties);
  if (directory < 0) return -1;
  tidy(directory, record);
  int opened = open_record(directory, record);
  int outcome = provide(directory, name, opened);
  int error = errno;
  int is_in_vain = outcome < 0 && opened >= 0 && faccessat(directory, name, F_OK, 0) < 0;
  if (is_in_vain && flock(opened, LOCK_EX | LOCK_NB) == 0) unlinkat(directory, record, 0);
  close(directory);
  if (outcome == 0 && opened >= 0) return opened;
  if (outcome == 0) return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* stands for the record that cannot be */
  if (opened >= 0) close(opened);
  if (error == EBADMSG) return -2;
  return unfit(place->path, strerror(error));
}

/* Provides the tree at the first fit place from `ready->place` on. Returns 0, or the exit code of a failure. */
static int prepare(char **arguments, struct ready *ready, int *lock) {
  struct place places[PLACES_MAX];
  char *properties[PROPERTIES_MAX + 1];
  int code = map_own_file();
  if (code) return code;
  int count = list_places(places);
  if (count < 0) return USAGE;
  list_properties(arguments, properties);
  for (; ready->place < count; ready->place++) {
    *lock = provide_at(&places[ready->place], properties, ready->command);
    if (*lock >= 0) return 0;
    if (*lock == -2) {
      say("this file is damaged: compare it with SHA256SUMS");
      return STORAGE_FAILED;
    }
  }
  if (count && places[0].variable) say("%s names no place to unpack into:%s", places[0].variable, why_not);
  else say("finds no place to unpack itself into (SNAPREBUILD_CACHE_DIR=DIR names one):%s", why_not);
  return REFUSED;
}

/* --- in a child ------------------------------------------------------------------------------------------------------------------- */

/* Sends what is ready, and the descriptor with the lock. */
static int send_ready(int to, struct ready *ready, int lock) {
  union {
    char bytes[CMSG_SPACE(sizeof lock)];
    struct cmsghdr aligned;
  } control = {{0}};
  struct iovec data = {ready, sizeof *ready};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof lock);
  memcpy(CMSG_DATA(header), &lock, sizeof lock);
  return sendmsg(to, &message, MSG_NOSIGNAL) == sizeof *ready ? 0 : -1;
}

static int receive_ready(int from, struct ready *ready, int *lock) {
  union {
    char bytes[CMSG_SPACE(sizeof *lock)];
    struct cmsghdr aligned;
  } control = {{0}};
  struct iovec data = {ready, sizeof *ready};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != sizeof *ready) return -1;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header == NULL || header->cmsg_type != SCM_RIGHTS) return -1;
  memcpy(lock, CMSG_DATA(header), sizeof *lock);
  return 0;
}

/* Whether the child says something before a moment, or ends. */
static int is_heard(int from, int64_t until) {
  for (;;) {
    struct pollfd heard = {from, POLLIN, 0};
    int64_t left = until < 0 ? -1 : (until - now_ns()) / 1000000;
    if (until >= 0 && left < 0) left = 0;
    int outcome = poll(&heard, 1, left);
    if (outcome >= 0 || errno != EINTR) return outcome > 0;
  }
}

/* Kills the child. It ends at once unless its storage hangs; nobody waits for that. */
static void give_up(pid_t child) {
  kill(child, SIGKILL);
  for (int waited = 0; waited < KILLED_MS && waitpid(child, NULL, WNOHANG) == 0; waited += PAUSE_MS) pause_briefly();
}

static int code_of(pid_t child) {
  int status;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return STORAGE_FAILED; /* whoever started us ignores the ends of children */
  if (WIFEXITED(status) && WEXITSTATUS(status)) return WEXITSTATUS(status);
  if (WIFSIGNALED(status)) say("the unpacking was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return STORAGE_FAILED;
}

/* As `prepare`, in a process of its own, until a moment of now_ns, or without an end. */
static int prepare_in_child(char **arguments, struct ready *ready, int *lock, int64_t until) {
  int ends[2];
  pid_t parent = getpid();
  pid_t child = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0 ? -1 : fork();
  if (child < 0) {
    say("the unpacking has no process: %s", strerror(errno));
    return STORAGE_FAILED;
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(STORAGE_FAILED);
    close(ends[0]);
    int code = prepare(arguments, ready, lock);
    if (code == 0 && send_ready(ends[1], ready, *lock) < 0) code = STORAGE_FAILED;
    _exit(code);
  }
  close(ends[1]);
  int code;
  if (!is_heard(ends[0], until)) {
    say("what is unpacked is not ready at the deadline");
    give_up(child);
    code = STORAGE_FAILED;
  } else if (receive_ready(ends[0], ready, lock) < 0) {
    code = code_of(child);
  } else {
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    code = 0;
  }
  close(ends[0]);
  return code;
}

/* --- the start -------------------------------------------------------------------------------------------------------------------- */

/* Standard streams that are closed would become files of ours. These end when another program takes over. */
static void fill_standard_streams(void) {
  int opened;
  do {
    opened = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (opened < 0) opened = open("/", O_RDONLY | O_CLOEXEC);
  } while (opened >= 0 && opened <= 2);
  if (opened > 2) close(opened);
}

/* Becomes the command. Returns where it does not start. */
static void become(const struct ready *ready, int lock, int64_t began, mode_t mask, char **arguments) {
  char launched[96];
  snprintf(launched, sizeof launched, "%d %lld %d", getpid(), (long long)began, lock);
  setenv(LAUNCHED, launched, 1);
  fcntl(lock, F_SETFD, 0);
  umask(mask);
  execv(ready->command, arguments);
  int error = errno;
  umask(0);
  fcntl(lock, F_SETFD, FD_CLOEXEC);
  close(lock);
  unsetenv(LAUNCHED);
  unfit(ready->command, strerror(error));
}

int main(int count __attribute__((unused)), char **arguments) {
  int64_t began = now_ns();
  struct wrapper wrapper = read_wrapper(arguments);
  start_if_switched(&wrapper);
  struct ready ready = {0};
  int code, lock = -1;
  fill_standard_streams();
  mode_t mask = umask(0);
  int64_t until = wrapper.deadline < 0 ? -1 : began + wrapper.deadline * 1000000000;
  if (until >= 0 && until < began + LEAST_MS * 1000000LL) until = began + LEAST_MS * 1000000LL;
  for (;;) {
    code = wrapper.is_one ? prepare_in_child(arguments, &ready, &lock, until) : prepare(arguments, &ready, &lock);
    if (code) break;
    become(&ready, lock, began, mask, arguments);
    ready.place++;
  }
  umask(mask);
  return start_all_the_same(&wrapper, code);
}
