/*
 * The two programs of the tree: `bin/python3.x` is the interpreter, `bin/snaprebuild` the command. Both become the real interpreter,
 * by the loader and the C library of the tree, so that the system needs neither. They are one program, linked statically, under two names.
 *
 * Where the command cannot be started, `before-start` and `install` become CMD (one_file_command.h).
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
#include "one_file_command.h"

#define REFUSED 3
#define STORAGE_FAILED 5

static void join(char *to, size_t size, const char *root, const char *end) {
  if (snprintf(to, size, "%s%s", root, end) >= (int)size) *to = 0; /* no program has this path */
}

/* The command: not the interpreter, which starts its own workers. */
static int is_command(const char *own) {
  const char *name = strrchr(own, '/');
  return strcmp(name ? name + 1 : own, "snaprebuild") == 0;
}

static int give_up(const char *own, char **arguments, int code) {
  if (!is_command(own)) return code;
  struct wrapper wrapper = read_wrapper(arguments);
  start_if_switched(&wrapper);
  return start_all_the_same(&wrapper, code);
}

int main(int count, char **arguments) {
  char own[4096], root[4096], loader[4200], libraries[4200], python[4200], interpreter[4200], called[4300], *command[count + 14];
  ssize_t size = readlink("/proc/self/exe", own, sizeof own - 1);
  const char *named = (const char *)getauxval(AT_EXECFN); /* for a system without /proc */
  if (size >= 0) own[size] = 0;
  else if (realpath(named ? named : arguments[0], own) == NULL) {
    fprintf(stderr, "snaprebuild: %s: %s\n", named ? named : arguments[0], strerror(errno));
    return give_up(named ? named : arguments[0], arguments, REFUSED);
  }
  join(root, sizeof root, own, "");
  for (int up = 0; up < 2; up++) {
    char *slash = strrchr(root, '/');
    if (slash == NULL) {
      fprintf(stderr, "snaprebuild: %s: this program works in its own tree only: make a symbolic link to it\n", own);
      return give_up(own, arguments, REFUSED);
    }
    *slash = 0;
  }
  join(loader, sizeof loader, root, "/lib/snaprebuild"); /* its name is that of the process */
  join(libraries, sizeof libraries, root, "/lib");
  join(python, sizeof python, root, "/bin/" PYTHON);
  join(interpreter, sizeof interpreter, root, "/bin/interpreter");
  join(called, sizeof called, "snaprebuild_program=", count > 0 ? arguments[0] : own); /* commands that it prints begin so */
  char *first[] = {loader, "--inhibit-cache", "--library-path", libraries, "--argv0", python, interpreter};
  /* Isolated: neither variables of Python nor packages of the user have a say in it. */
  char *module[] = {"-IB", "-X", called, "-m", "snaprebuild"};
  int used = sizeof first / sizeof *first;
  memcpy(command, first, sizeof first);
  if (is_command(own)) {
    memcpy(command + used, module, sizeof module);
    used += sizeof module / sizeof *module;
  }
  for (int i = 1; i < count; i++) command[used++] = arguments[i];
  command[used] = NULL;
  execv(loader, command);
  fprintf(stderr, "snaprebuild: %s: %s\n", loader, strerror(errno));
  return give_up(own, arguments, STORAGE_FAILED);
}
