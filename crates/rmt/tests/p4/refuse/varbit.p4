// Fields of variable length are not part of the subset.
header h {
    varbit<320> options;
}
