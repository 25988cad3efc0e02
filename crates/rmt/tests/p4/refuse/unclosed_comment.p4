// A comment without an end.
/* never
