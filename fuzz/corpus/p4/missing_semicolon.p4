// A missing semicolon.
const bit<8> X = 1
