// What the sample wants in a version.
extern "C" int sample_versioned() { return 2; }
