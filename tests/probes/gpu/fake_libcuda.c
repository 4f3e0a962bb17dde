/* A stand-in for libcuda.so.1 at its boundary: same names, no driver. FAKE_CUDA names what it plays:
   a number (cuInit's error), "hang", "crash", or nothing: CUDA_VISIBLE_DEVICES's integers of three cards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int order[8], count;

int cuDriverGetVersion(int *version) { *version = 12080; return 0; }

int cuInit(unsigned flags) {
    const char *plays = getenv("FAKE_CUDA"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (plays && !strcmp(plays, "hang")) for (;;) pause();
    if (plays && !strcmp(plays, "crash")) abort();
    if (plays && atoi(plays)) return atoi(plays);
    printf("a library that prints\n");
    if (!visible) visible = "0,1,2";
    for (; *visible; visible++) if (*visible != ',') order[count++] = *visible - '0';
    return count ? 0 : 100;
}

int cuDeviceGetCount(int *found) { *found = count; return 0; }
int cuDeviceGet(int *device, int index) { *device = order[index]; return 0; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Card %d", device); return 0; }
int cuDeviceGetPCIBusId(char *text, int size, int device) { snprintf(text, size, "0000:%02X:00.0", 0xA0 + device); return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, 0x10 + device, 16); return device == 2 ? 999 : 0; }
int cuDeviceTotalMem_v2(size_t *size, int device) { *size = (size_t)1 << 34; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case 75: *value = 8; return 0;
        case 76: *value = 9; return 0;
        case 16: *value = 46; return 0;
        case 18: *value = 0; return 0;
        case 36: *value = 9001000; return 0;
    }
    return 1;
}
