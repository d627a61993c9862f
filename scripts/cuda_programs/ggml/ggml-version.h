// CMake writes the one of ggml's own build.
#define GGML_VERSION "0"
#define GGML_COMMIT "0"
