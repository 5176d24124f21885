/*
 * Log directories of a broker: nothing of ours may be made in one or below it, as a broker that finds a directory there whose name is not
 * <topic>-<partition> does not start.
 *
 * A directory is a log directory if it has one of the files that a broker keeps there, or a partition directory with files of a log, or if
 * the server.properties of the command line names it. The files are BROKER_FILES of formats/partition/file_names.py without `.lock`, which
 * other programs have too; tests/release/test_launcher_places.py compares the lists. Links are followed first. Of server.properties the values of
 * three keys are taken, all that are there; the command itself reads it in full (snaprebuild/storage/local/log_dir_guard.py).
 */
#ifndef ONE_FILE_BROKER_H
#define ONE_FILE_BROKER_H
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OFFSET_DIGITS 20
#define PARTITION_ENTRIES_MAX 1000 /* names of one directory that are looked at: a partition has files of its log among the first */
#define PROPERTIES_SIZE_MAX (1 << 20)

static const char *const BROKER_FILES[] = {
    "meta.properties",           "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint", ".kafka_cleanshutdown",             NULL};
static const char *const LOG_DIR_KEYS[] = {"log.dirs", "log.dir", "metadata.log.dir", NULL};

/*
 * The path as it is when all links are followed, as far as it exists, with the rest of it as it is. Returns the size of the part that exists,
 * or 0 if it is too long.
 */
static size_t resolve(const char *path, char *resolved) {
  char head[PATH_MAX];
  size_t end = strlen(path), used;
  if (end >= sizeof head) return 0;
  memcpy(head, path, end + 1);
  while (realpath(end ? head : "/", resolved) == NULL) {
    if (end == 0) return 0;
    while (end && path[end - 1] != '/') end--;
    while (end && path[end - 1] == '/') end--;
    head[end] = 0;
  }
  used = strlen(resolved);
  const char *rest = path + end;
  while (*rest == '/') rest++;
  if (*rest && snprintf(resolved + used, PATH_MAX - used, "%s%s", used > 1 ? "/" : "", rest) >= (int)(PATH_MAX - used)) return 0;
  return used;
}

/* <topic>-<partition>, with or without the mark of a directory that is deleted or moved. */
static int is_partition_name(const char *name) {
  const char *end = name + strcspn(name, "-");
  for (; *end; end += 1 + strcspn(end + 1, "-")) {
    size_t digits = strspn(end + 1, "0123456789");
    if (end > name && digits && (end[1 + digits] == 0 || end[1 + digits] == '.')) return 1;
  }
  return 0;
}

static int is_file_of_a_log(const char *name) {
  if (strcmp(name, "leader-epoch-checkpoint") == 0 || strcmp(name, "partition.metadata") == 0) return 1;
  return strspn(name, "0123456789") == OFFSET_DIGITS && (name[OFFSET_DIGITS] == '.' || name[OFFSET_DIGITS] == '-');
}

static int has_files_of_a_log(int parent, const char *name) {
  int found = 0;
  int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return 0;
  DIR *listing = fdopendir(directory);
  if (listing == NULL) {
    close(directory);
    return 0;
  }
  struct dirent *each;
  for (int looked_at = 0; !found && looked_at < PARTITION_ENTRIES_MAX && (each = readdir(listing)); looked_at++)
    found = is_file_of_a_log(each->d_name);
  closedir(listing);
  return found;
}

static int is_log_directory(const char *path) {
  struct stat status;
  char file[PATH_MAX];
  for (const char *const *name = BROKER_FILES; *name; name++) {
    if (snprintf(file, sizeof file, "%s/%s", path, *name) < (int)sizeof file && lstat(file, &status) == 0) return 1;
  }
  DIR *listing = opendir(path);
  struct dirent *each;
  int found = 0;
  while (listing && !found && (each = readdir(listing))) {
    if (is_partition_name(each->d_name)) found = has_files_of_a_log(dirfd(listing), each->d_name);
  }
  if (listing) closedir(listing);
  return found;
}

/* Whether a path is a directory or is below it; both are resolved. */
static int is_at_or_below(const char *path, const char *directory) {
  size_t size = strlen(directory);
  return strncmp(path, directory, size) == 0 && (path[size] == 0 || path[size] == '/' || directory[size - 1] == '/');
}

/* The next line of a properties file, continued ones joined, without comments and without the blanks that begin it; NULL at the end. */
static char *next_line(char **text) {
  char *from = *text;
  do {
    from += strspn(from, " \t\f\r\n");
    if (*from == '#' || *from == '!') from += strcspn(from, "\r\n");
  } while (*from == '\r' || *from == '\n');
  if (*from == 0) return NULL;
  char *to = from, *line = from;
  while (*from && *from != '\r' && *from != '\n') {
    if (*from != '\\' || from[1] == 0) {
      *to++ = *from++;
    } else if (from[1] == '\r' || from[1] == '\n') {
      from += from[1] == '\r' && from[2] == '\n' ? 3 : 2;
      from += strspn(from, " \t\f");
    } else {
      from++;
      *to++ = *from++;
    }
  }
  *text = from + (*from != 0);
  *to = 0;
  return line;
}

/* The value of a line whose key is that of log directories; else NULL. */
static char *log_directories_of(char *line) {
  char *end = line + strcspn(line, "=: \t\f");
  char *value = end + strspn(end, " \t\f");
  if (*value == '=' || *value == ':') value++;
  *end = *end ? 0 : *end;
  for (const char *const *key = LOG_DIR_KEYS; *key; key++)
    if (strcmp(line, *key) == 0) return value;
  return NULL;
}

/* The text of a regular file, or NULL: what is read from a pipe would be lost for the command itself. */
static char *read_properties(const char *file) {
  struct stat status;
  int from = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (from < 0) return NULL;
  char *text = NULL;
  if (fstat(from, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= PROPERTIES_SIZE_MAX) text = calloc(1, status.st_size + 1);
  ssize_t size = text ? read(from, text, status.st_size) : -1;
  close(from);
  if (size >= 0) return text;
  free(text);
  return NULL;
}

/* Whether a resolved path is in a directory that this server.properties names, which is then copied to `where`. */
static int is_in_configured(const char *path, const char *properties, char *where) {
  char *text = read_properties(properties), *rest = text, *line, absolute[2 * PATH_MAX], here[PATH_MAX];
  int found = 0;
  while (text && !found && (line = next_line(&rest))) {
    char *value = log_directories_of(line);
    for (char *each = value ? strtok(value, ",") : NULL; each && !found; each = strtok(NULL, ",")) {
      each += strspn(each, " \t\f");
      size_t size = strlen(each);
      while (size && strchr(" \t\f", each[size - 1])) each[--size] = 0;
      if (size == 0) continue;
      if (*each == '/') snprintf(absolute, sizeof absolute, "%s", each);
      else if (getcwd(here, sizeof here)) snprintf(absolute, sizeof absolute, "%s/%s", here, each);
      else continue;
      found = resolve(absolute, where) && is_at_or_below(path, where);
    }
  }
  free(text);
  return found;
}

/* Whether a directory that may not exist yet is, or would be, in a log directory, whose path is then in `where`. */
static int is_in_log_directory(const char *place, char **properties, char *where) {
  char resolved[PATH_MAX];
  size_t existing = resolve(place, resolved);
  for (; existing && *properties; properties++)
    if (is_in_configured(resolved, *properties, where)) return 1;
  while (existing) {
    snprintf(where, PATH_MAX, "%.*s", (int)existing, resolved);
    if (is_log_directory(where)) return 1;
    if (existing == 1) break;
    while (existing > 1 && resolved[existing - 1] != '/') existing--;
    if (existing > 1) existing--;
  }
  return 0;
}
#endif
