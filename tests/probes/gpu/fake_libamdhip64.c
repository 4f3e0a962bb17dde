/* A stand-in for libamdhip64.so at its boundary. FAKE_HIP: hipInit's error, or nothing: two cards, the second first. */
#include <stdio.h>
#include <stdlib.h>

int hipInit(unsigned flags) { const char *plays = getenv("FAKE_HIP"); return plays ? atoi(plays) : 0; }
int hipGetDeviceCount(int *count) { *count = 2; return 0; }
int hipDeviceGetPCIBusId(char *text, int size, int device) { snprintf(text, size, "0000:%02X:00.0", 0xC4 - device); return 0; }
const char *hipGetErrorName(int code) { return code == 100 ? "hipErrorNoDevice" : "hipErrorUnknown"; }
