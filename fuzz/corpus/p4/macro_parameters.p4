// A macro with parameters.
#define TWICE(x) ((x) + (x))
