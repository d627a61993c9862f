/* random_calls LIBRARY NAMES CALLS SEED: calls of functions with random arguments; what they return is counted. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef uint64_t u64;
typedef int (*function)(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);
static u64 *state_at;
#define state (*state_at)
static u64 random64(void) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return state; }

/* What functions may write to stands alone, between pages that are not mapped. */
static u64 *numbers, *room, freed, handles[32], page, readonly;

static u64 *alone(void) {
  char *at = mmap(0, 3 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mmap(at + (1 << 20), 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static u64 argument(void) {
  switch (random64() % 16) {
    case 0: return 0;
    case 1: return random64() % 8;
    case 2: return random64() % 4096;
    case 3: return random64();
    case 4: return random64() >> (random64() % 64);
    case 5: return (u64)&room[random64() % 480];
    case 6: return (u64)&numbers[random64() % 32];
    case 7: return handles[random64() % 32];
    case 8: return freed + random64() % 4096;
    case 9: return page + 4096 - random64() % 16; /* the next page is not mapped */
    case 10: return readonly + random64() % 4096;
    case 11: return (u64)-1 - random64() % 64;
    case 12: return (u64)argument;
    case 13: return numbers[random64() % 64]; /* what a function may have put there */
    case 14: return 0xffffffffu & random64();
    default: return (u64)room;
  }
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) { fprintf(stderr, "%s\n", dlerror()); return 2; }
  static char names[1024][96];
  function functions[1024];
  int count = 0, good = 0, bad = 0;
  FILE *file = fopen(argv[2], "r");
  while (count < 1024 && fscanf(file, "%95s", names[count]) == 1) {
    functions[count] = (function)dlsym(library, names[count]);
    if (functions[count]) count++;
  }
  fclose(file);
  state_at = malloc(8);
  numbers = alone();
  room = alone();
  state = strtoull(argv[4], 0, 10) * 0x9E3779B97F4A7C15u + 1;
  page = (u64)alone();
  mprotect((void *)(page + 4096), (1 << 16) - 4096, PROT_NONE);
  readonly = (u64)mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  freed = (u64)mmap(0, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* kept: nobody else gets it */
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
  if (init) {
    init(0);
    ((int (*)(u64 *, int))dlsym(library, "cuDevicePrimaryCtxRetain"))(handles, 0);
    ((int (*)(u64))dlsym(library, "cuCtxSetCurrent"))(handles[0]);
  }
  long calls = atol(argv[3]);
  int log = argc > 5;
  for (long i = 0; i < calls; i++) {
    for (int k = 0; k < 4; k++) numbers[32 + k] = random64() % 3 ? numbers[32 + k] : random64();
    int n = random64() % count;
    u64 a[12];
    for (int k = 0; k < 12; k++) a[k] = argument();
    if (log) { fprintf(stderr, "%ld %s", i, names[n]); for (int k = 0; k < 8; k++) fprintf(stderr, " %lx", a[k]); fprintf(stderr, "\n"); }
    int code = functions[n](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    if (code) bad++;
    else { good++; handles[1 + random64() % 31] = room[0] ? room[0] : numbers[random64() % 32]; }
    if (i % 500 == 499 && init) ((int (*)(u64))dlsym(library, "cuCtxSetCurrent"))(handles[0]);
  }
  printf("%ld calls: %d succeeded, %d were refused\n", calls, good, bad);
  return 0;
}
