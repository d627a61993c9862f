/* random_calls LIBRARY NAMES CALLS SEED: calls of functions with random arguments; what they return is counted. */
#define _GNU_SOURCE
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

/* Objects that are there, and descriptions like those that made them, each with a word of its own changed now and then:
   arrays, textures, surfaces, graphs, nodes, linkers and programs have checks behind those of their handles. */
enum { OBJECTS = 24, DESCRIPTIONS = 10, WORDS = 64 };
static u64 objects[OBJECTS], *descriptions;

static u64 *description(int n) { return descriptions + n * WORDS; }

static int call(const char *name, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f) {
  function found = (function)dlsym(RTLD_DEFAULT, name); /* the driver's, for the runtime's functions too */
  return found ? found(a, b, c, d, e, f, 0, 0, 0, 0, 0, 0) : -1;
}

static const char text[] =
    ".version 8.0 .target sm_80 .address_size 64\n.visible .global .u32 v[4];\n"
    ".visible .entry k(.param .u64 p) { .reg .b64 a; ld.param.u64 a, [p]; st.global.u64 [a], a; ret; }\n";

static void make_objects(void) {
  memset(descriptions, 0, DESCRIPTIONS * WORDS * sizeof(u64));
  u64 *plane = description(0), *space = description(1), *of_plane = description(2), *of_memory = description(3);
  u64 *reading = description(4), *kernel = description(5), *filling = description(6), *copying = description(7);
  static u64 memory, arguments[1] = {(u64)&memory};
  plane[0] = plane[1] = 16, plane[2] = 0x20 | 1ull << 32;                    /* f32, one channel */
  space[0] = space[1] = space[2] = 8, space[3] = 0x20 | 1ull << 32, space[4] = 2; /* for surfaces */
  call("cuMemAlloc_v2", (u64)&memory, 4096, 0, 0, 0, 0);
  call("cuArrayCreate_v2", (u64)&objects[0], (u64)plane, 0, 0, 0, 0);
  call("cuArray3DCreate_v2", (u64)&objects[1], (u64)space, 0, 0, 0, 0);
  of_plane[1] = objects[0];
  of_memory[0] = 2, of_memory[1] = memory, of_memory[2] = 0x20 | 1ull << 32, of_memory[3] = 4096;
  call("cuTexObjectCreate", (u64)&objects[2], (u64)of_plane, (u64)reading, 0, 0, 0);
  call("cuTexObjectCreate", (u64)&objects[3], (u64)of_memory, (u64)reading, 0, 0, 0);
  of_plane[1] = objects[1];
  call("cuSurfObjectCreate", (u64)&objects[4], (u64)of_plane, 0, 0, 0, 0);
  call("cuModuleLoadData", (u64)&objects[5], (u64)text, 0, 0, 0, 0);
  call("cuModuleGetFunction", (u64)&objects[6], objects[5], (u64)"k", 0, 0, 0);
  call("cuGraphCreate", (u64)&objects[7], 0, 0, 0, 0, 0);
  kernel[0] = objects[6], kernel[1] = kernel[2] = kernel[3] = 1ull | 1ull << 32, kernel[4] = 0, kernel[5] = (u64)arguments;
  filling[0] = memory, filling[2] = 4ull << 32 | 7, filling[3] = 16, filling[4] = 1;
  call("cuGraphAddKernelNode_v2", (u64)&objects[8], objects[7], 0, 0, (u64)kernel, 0);
  call("cuGraphAddMemsetNode", (u64)&objects[9], objects[7], 0, 0, (u64)filling, handles[0]);
  call("cuGraphAddEmptyNode", (u64)&objects[10], objects[7], 0, 0, 0, 0);
  call("cuGraphInstantiateWithFlags", (u64)&objects[11], objects[7], 0, 0, 0, 0);
  call("cuStreamCreate", (u64)&objects[12], 0, 0, 0, 0, 0);
  call("cuEventCreate", (u64)&objects[13], 0, 0, 0, 0, 0);
  call("cuLinkCreate_v2", 0, 0, 0, (u64)&objects[14], 0, 0);
  call("cuLibraryLoadData", (u64)&objects[15], (u64)text, 0, 0, 0, 0);
  call("cuDeviceGetDefaultMemPool", (u64)&objects[16], 0, 0, 0, 0, 0);
  copying[2] = 1, copying[3] = (u64)room, copying[8] = 3, copying[11] = objects[0], copying[13] = 64, copying[14] = 16;
  objects[17] = memory, objects[18] = (u64)text, objects[19] = (u64)"k", objects[20] = (u64)arguments;
  call("cuGraphCreate", (u64)&objects[21], 0, 0, 0, 0, 0);
  for (int i = 0; i < DESCRIPTIONS * WORDS; i++)
    if (i >= 8 * WORDS) descriptions[i] = random64() % 4 ? random64() % 5 : random64();
}

static u64 argument(void) {
  switch (random64() % 20) {
    case 16: case 17: return objects[random64() % OBJECTS];
    case 18: case 19: {
      u64 *at = description(random64() % DESCRIPTIONS);
      if (random64() % 8 == 0) at[random64() % 16] = random64() % 3 ? objects[random64() % OBJECTS] : random64() >> (random64() % 64);
      return (u64)at;
    }
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
  descriptions = alone();
  room = alone();
  state = strtoull(argv[4], 0, 10) * 0x9E3779B97F4A7C15u + 1;
  page = (u64)alone();
  mprotect((void *)(page + 4096), (1 << 16) - 4096, PROT_NONE);
  readonly = (u64)mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  freed = (u64)mmap(0, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* kept: nobody else gets it */
  call("cuInit", 0, 0, 0, 0, 0, 0);
  call("cuDevicePrimaryCtxRetain", (u64)handles, 0, 0, 0, 0, 0);
  call("cuCtxSetCurrent", handles[0], 0, 0, 0, 0, 0);
  make_objects();
  long calls = atol(argv[3]);
  int log = argc > 5;
  for (long i = 0; i < calls; i++) {
    for (int k = 0; k < 4; k++) numbers[32 + k] = random64() % 3 ? numbers[32 + k] : random64();
    int n = random64() % count;
    u64 a[12];
    for (int k = 0; k < 12; k++) a[k] = argument();
    if (random64() % 2) a[0] = (u64)room; /* where most functions put what they make */
    if (random64() % 4 == 0) a[random64() % 3] = objects[random64() % OBJECTS];
    if (log) { fprintf(stderr, "%ld %s", i, names[n]); for (int k = 0; k < 8; k++) fprintf(stderr, " %lx", a[k]); fprintf(stderr, "\n"); }
    int code = functions[n](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    if (code) bad++;
    else { good++; handles[1 + random64() % 31] = room[0] ? room[0] : numbers[random64() % 32]; }
    if (i % 500 == 499) call("cuCtxSetCurrent", handles[0], 0, 0, 0, 0, 0);
    if (i % 2000 == 1999) make_objects(); /* some calls end them */
  }
  printf("%ld calls: %d succeeded, %d were refused\n", calls, good, bad);
  return 0;
}
