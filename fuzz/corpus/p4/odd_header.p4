// A header that is not whole bytes.
header h {
    bit<9> port;
}
