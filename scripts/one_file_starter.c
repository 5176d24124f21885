/*
 * The interpreter of the one file, as whoever starts it sees it: `bin/python3.x` of what was unpacked. It becomes the real one, by the
 * loader and the C library that lie next to it, so that the system needs neither. It is linked statically.
 *
 * The real one is called by this program's path (`--argv0`): Python finds its library by it, and starts its workers with it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static void join(char *to, size_t size, const char *root, const char *end) {
  if (snprintf(to, size, "%s%s", root, end) >= (int)size) {
    fputs("snaprebuild: the path of what was unpacked is too long\n", stderr);
    exit(3);
  }
}

int main(int count, char **arguments) {
  char own[4096], root[4096], loader[4200], libraries[4200], interpreter[4200], *command[count + 8];
  ssize_t size = readlink("/proc/self/exe", own, sizeof own - 1);
  const char *named = (const char *)getauxval(AT_EXECFN); /* for a system without /proc */
  if (size >= 0) own[size] = 0;
  else join(own, sizeof own, named ? named : arguments[0], "");
  join(root, sizeof root, own, "");
  for (int up = 0; up < 2; up++) {
    char *slash = strrchr(root, '/');
    if (slash == NULL) {
      fprintf(stderr, "snaprebuild: %s: expected an absolute path\n", own);
      return 3;
    }
    *slash = 0;
  }
  join(loader, sizeof loader, root, "/lib/snaprebuild"); /* its name is that of the process */
  join(libraries, sizeof libraries, root, "/lib");
  join(interpreter, sizeof interpreter, root, "/bin/interpreter");
  char *first[] = {loader, "--inhibit-cache", "--library-path", libraries, "--argv0", own, interpreter};
  memcpy(command, first, sizeof first);
  for (int i = 1; i <= count; i++) command[6 + i] = arguments[i]; /* the last is NULL */
  if (count == 0) command[7] = NULL;
  execv(loader, command);
  fprintf(stderr, "snaprebuild: %s: %s\n", loader, strerror(errno));
  return 5;
}
