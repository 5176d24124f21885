/*
 * The two programs of the tree: `bin/python3.x` is the interpreter, `bin/snaprebuild` the command. Both become the real interpreter,
 * by the loader and the C library of the tree, so that the system needs neither. They are one program, linked statically, under two names.
 *
 * The interpreter is called by the path of `bin/python3.x` (`--argv0`): Python finds its library by it, and starts its workers with it.
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
  char own[4096], root[4096], loader[4200], libraries[4200], python[4200], interpreter[4200], *command[count + 12];
  ssize_t size = readlink("/proc/self/exe", own, sizeof own - 1);
  const char *named = (const char *)getauxval(AT_EXECFN); /* for a system without /proc */
  if (size >= 0) own[size] = 0;
  else if (realpath(named ? named : arguments[0], own) == NULL) {
    fprintf(stderr, "snaprebuild: %s: %s\n", named ? named : arguments[0], strerror(errno));
    return 3;
  }
  join(root, sizeof root, own, "");
  for (int up = 0; up < 2; up++) {
    char *slash = strrchr(root, '/');
    if (slash == NULL) {
      fprintf(stderr, "snaprebuild: %s: this program works in its own tree only: make a symbolic link to it\n", own);
      return 3;
    }
    *slash = 0;
  }
  join(loader, sizeof loader, root, "/lib/snaprebuild"); /* its name is that of the process */
  join(libraries, sizeof libraries, root, "/lib");
  join(python, sizeof python, root, "/bin/" PYTHON);
  join(interpreter, sizeof interpreter, root, "/bin/interpreter");
  char *first[] = {loader, "--inhibit-cache", "--library-path", libraries, "--argv0", python, interpreter};
  /* Isolated: neither variables of Python nor packages of the user have a say in it. */
  char *module[] = {"-IB", "-m", "snaprebuild"};
  int used = sizeof first / sizeof *first;
  memcpy(command, first, sizeof first);
  if (strcmp(strrchr(own, '/'), "/snaprebuild") == 0) {
    memcpy(command + used, module, sizeof module);
    used += sizeof module / sizeof *module;
  }
  for (int i = 1; i < count; i++) command[used++] = arguments[i];
  command[used] = NULL;
  execv(loader, command);
  fprintf(stderr, "snaprebuild: %s: %s\n", loader, strerror(errno));
  return 5;
}
