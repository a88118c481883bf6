// A shared library whose symbols elf_test.cpp knows.
extern "C" {
int sample_versioned();
int cudaSampleMissing();
extern const char* const sample_texts[];
const char* const sample_texts[] = {"cuSampleByName", "nvmlSampleByName", "custom text"};
int sample_defined() { return sample_versioned() + cudaSampleMissing(); }
}
