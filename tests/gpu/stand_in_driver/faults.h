/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Faults of a card, on demand: STAND_IN_FAULT=KIND:LAUNCH:FILE. The fault comes at that launch of a
 * process, from 1, or at the next occasion after it, and once only: in the process that makes FILE.
 *
 *   memory   no memory for an allocation before the launch
 *   launch   the launch fails, and the process can go on
 *   limits   the launch is refused, as by a card of lower limits than it tells
 *   illegal  the launch succeeds, and every later call of the process fails
 *   hang     the launch succeeds, and the process waits for its end for ever
 */

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { ILLEGAL_ADDRESS = 700, LAUNCH_OUT_OF_RESOURCES = 701 };

static unsigned long launches = 0;
static int is_broken = 0, is_hanging = 0;

static int is_due(const char *kind, unsigned long launch) {
  char wanted[16], file[1024];
  unsigned long first;
  const char *fault = getenv("STAND_IN_FAULT");
  if (fault == NULL || sscanf(fault, "%15[a-z]:%lu:%1023s", wanted, &first, file) != 3) return 0;
  if (strcmp(kind, wanted) != 0 || launch < first) return 0;
  int descriptor = open(file, O_CREAT | O_EXCL | O_WRONLY, 0600);
  return descriptor >= 0 ? close(descriptor), 1 : 0;
}

/* The status of each call, before what it does. */
int stand_in_status(void) { return is_broken ? ILLEGAL_ADDRESS : 0; }

/* The status of each launch. */
int stand_in_launch_status(void) {
  if (is_broken) return ILLEGAL_ADDRESS;
  ++launches;
  if (is_due("launch", launches)) return LAUNCH_OUT_OF_RESOURCES;
  if (is_due("limits", launches)) return INVALID_VALUE;
  if (is_due("illegal", launches)) is_broken = 1;
  if (is_due("hang", launches)) is_hanging = 1;
  return 0;
}

static int allocation_status(void) {
  if (is_broken) return ILLEGAL_ADDRESS;
  return is_due("memory", launches + 1) ? OUT_OF_MEMORY : 0;
}

static int wait_status(void) {
  while (is_hanging) pause();
  return stand_in_status();
}
