// A checksum unit outside of parsers and deparsers.
#include "../frame.p4"

Checksum() sum;
