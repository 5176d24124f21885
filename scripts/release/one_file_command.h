/*
 * CMD of `before-start` and `install`: what they become where this program cannot start them. A broker starts whatever becomes of us.
 *
 * The arguments are read as the command itself reads them (snaprebuild/cli/verb_command.py, wrapped_command.py; tests/release/test_launcher.py
 * compares the lists). The verb is the first word that is neither a global option nor the value of one; what is after the first `--`
 * that follows it is CMD.
 */
#ifndef ONE_FILE_COMMAND_H
#define ONE_FILE_COMMAND_H
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CMD_NOT_FOUND 127 /* as of a shell */
#define CMD_NOT_EXECUTABLE 126
#define DEADLINE_DIGITS_MAX 6
#define START_ANYWAY "SNAPREBUILD_START_ANYWAY" /* as in snaprebuild/__main__.py */
#define START_ANYWAY_FILE "/run/snaprebuild/start-anyway"
#define LAUNCHED "SNAPREBUILD_LAUNCHED" /* "PROCESS NANOSECONDS DESCRIPTOR": when it began, and what holds the lock of the tree */

/* The verb and its arguments, as far as they decide about CMD. */
struct wrapper {
  int is_one;        /* the verb is before-start or install */
  char **command;    /* CMD and its arguments, or NULL: there is none, or it starts only after a success, or help was requested */
  long deadline;     /* of --deadline, in seconds, or -1 */
  const char *switch_on; /* why CMD of before-start starts at once, whatever the other arguments are; NULL without the switch */
};

static const char *const GLOBAL_WITH_VALUE[] = {"--impact", "--jobs",  "--engine", "--master",    "--cache", "--s3-endpoint-url",
                                                "--set",    "--config", "--save-json", "--metrics", NULL};
static const char *const GLOBAL_FLAGS[] = {"-v", "-vv", "--verbose", NULL};
static const char *const HELP[] = {"-h", "--help", "--help-all", NULL};

/* Whether a word is one of these options, alone or with `=VALUE`. */
static int is_option_of(const char *const *options, const char *word) {
  size_t size = strcspn(word, "=");
  for (; *options; options++)
    if (strlen(*options) == size && strncmp(*options, word, size) == 0) return 1;
  return 0;
}

/* The value of an option: behind its `=`, or the next word before the end; NULL if this word is another option. */
static const char *value_of(const char *option, char **word, char **end) {
  size_t size = strlen(option);
  if (strncmp(*word, option, size) != 0) return NULL;
  if ((*word)[size] == '=') return *word + size + 1;
  if ((*word)[size] == 0 && word + 1 < end) return word[1];
  return NULL;
}

/* Seconds, or -1: the command itself says what is wrong with them. */
static long seconds_of(const char *text) {
  size_t size = strspn(text, "0123456789");
  if (size == 0 || size > DEADLINE_DIGITS_MAX || text[size]) return -1;
  return atol(text);
}

static char **verb_of(char **word) {
  while (*word) {
    int has_value = is_option_of(GLOBAL_WITH_VALUE, *word);
    if (!has_value && !is_option_of(GLOBAL_FLAGS, *word)) return word;
    word++;
    if (has_value && strchr(word[-1], '=') == NULL && *word) word++;
  }
  return word;
}

/* The variable or the file with which an operator switches all checks off; NULL without either. */
static const char *start_anyway(void) {
  const char *value = getenv(START_ANYWAY);
  if (value && strcmp(value, "1") == 0) return START_ANYWAY "=1";
  return access(START_ANYWAY_FILE, F_OK) == 0 ? START_ANYWAY_FILE " exists" : NULL;
}

static struct wrapper read_wrapper(char **arguments) {
  struct wrapper found = {0, NULL, -1, NULL};
  char **verb = *arguments ? verb_of(arguments + 1) : arguments;
  if (*verb == NULL || (strcmp(*verb, "before-start") != 0 && strcmp(*verb, "install") != 0)) return found;
  found.is_one = 1;
  char **end = verb;
  while (*end && strcmp(*end, "--") != 0) end++;
  int may_start = *end && end[1] && *end[1];
  if (may_start && strcmp(*verb, "before-start") == 0) found.switch_on = start_anyway();
  for (char **word = verb + 1; word < end; word++) {
    const char *deadline = value_of("--deadline", word, end);
    if (deadline) found.deadline = seconds_of(deadline);
    if (strncmp(*word, "--fail", strlen("--fail")) == 0 || is_option_of(HELP, *word)) may_start = 0;
  }
  if (may_start || found.switch_on) found.command = end + 1;
  return found;
}

/* What was handed on is for this program alone: CMD gets neither the variable nor the lock. */
static void forget_launch(void) {
  int process, lock;
  const char *launched = getenv(LAUNCHED);
  if (launched && sscanf(launched, "%d %*s %d", &process, &lock) == 2 && process == getpid()) fcntl(lock, F_SETFD, FD_CLOEXEC);
  unsetenv(LAUNCHED);
}

/* Becomes CMD with nothing checked, where the switch is on. It returns without the switch, and where CMD cannot be started. */
static void start_if_switched(const struct wrapper *wrapper) {
  if (wrapper->switch_on == NULL) return;
  forget_launch();
  fprintf(stderr, "snaprebuild: Nothing was checked: %s.\n", wrapper->switch_on);
  execvp(wrapper->command[0], wrapper->command);
}

/* Becomes CMD after a failure. Returns the exit code where there is none, or where it does not start. */
static int start_all_the_same(const struct wrapper *wrapper, int code) {
  if (wrapper->command == NULL) return code;
  forget_launch();
  fprintf(stderr, "snaprebuild: nothing was prepared; %s is started all the same\n", wrapper->command[0]);
  execvp(wrapper->command[0], wrapper->command);
  int error = errno;
  fprintf(stderr, "snaprebuild: %s: %s\n", wrapper->command[0], strerror(error));
  return error == ENOENT ? CMD_NOT_FOUND : CMD_NOT_EXECUTABLE;
}
#endif
