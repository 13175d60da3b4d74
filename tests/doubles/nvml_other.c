// A library of another major version: none of the names that traind knows is in it.
int nvmlInit_v9(void);
int nvmlInit_v9(void) {
    return 0;
}
