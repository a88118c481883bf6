#include "evidence/importers/unpickle.hpp"

#include <cstdint>
#include <string>

#include "simulator/pickle.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/import_support.hpp"

namespace {

using namespace std::string_literals;
using zeroplan::InputError;
using zeroplan::evidence::Measurement;
using zeroplan::evidence::Metric;
using zeroplan::evidence::Pickle;
using zeroplan::simulator::PickleWriter;
using zeroplan::test::measure;
using zeroplan::test::notes_have;
using zeroplan::test::value_of;

std::string refusal(const std::string& bytes) {
  try {
    Pickle::parse(bytes, "x.pickle");
  } catch (const InputError& error) {
    return error.diagnostics().front().got;
  }
  return "";
}

// A snapshot of one segment with one block of 1024 bytes, and such a history.
std::string snapshot(void (*history)(PickleWriter&)) {
  PickleWriter out;
  out.begin_dict();
  out.text("segments");
  out.begin_list();
  out.begin_dict();
  out.entry("device", 0);
  out.entry("total_size", 2097152);
  out.text("blocks");
  out.begin_list();
  out.begin_dict();
  out.entry("size", 1024);
  out.entry("state", "active_allocated");
  out.end_dict();
  out.end_list();
  out.end_dict();
  out.end_list();
  out.text("device_traces");
  out.begin_list();
  out.begin_list();
  history(out);
  out.end_list();
  out.end_list();
  out.end_dict();
  return out.finish();
}

void event(PickleWriter& out, const char* action, std::int64_t size) {
  out.begin_dict();
  out.entry("action", action);
  out.entry("size", size);
  out.end_dict();
}

}  // namespace

TEST_CASE("What the writer of pickles writes is read back") {
  PickleWriter out;
  out.begin_dict();
  out.entry("small", 7);
  out.entry("negative", -5);
  out.entry("large", std::int64_t{1} << 40);
  out.entry("name", "a.py");
  out.text("flag");
  out.boolean(true);
  out.end_dict();
  const std::string bytes = out.finish();
  const Pickle pickle = Pickle::parse(bytes, "x.pickle");
  const auto integer = [&](const char* key) {
    return pickle.integer(*pickle.find(pickle.root(), key));
  };
  CHECK(integer("small") == 7);
  CHECK(integer("negative") == -5);
  CHECK(integer("large") == std::int64_t{1} << 40);
  CHECK(integer("flag") == 1);
  CHECK(pickle.text(*pickle.find(pickle.root(), "name")) == "a.py");
  CHECK_FALSE(pickle.find(pickle.root(), "other"));
}

TEST_CASE("Python's protocol 4 with frames and memoized values is read") {
  // {"a": [1, 300, None, (2,)], "b": "a"} with the second "a" from the memo.
  const std::string bytes =
      "\x80\x04\x95\x18\x00\x00\x00\x00\x00\x00\x00"
      "}\x94(\x8c\x01"
      "a\x94]\x94(K\x01M\x2c\x01NK\x02\x85\x94"
      "e\x8c\x01"
      "b\x94h\x01u."s;
  const Pickle pickle = Pickle::parse(bytes, "x.pickle");
  const auto& items = pickle.items(*pickle.find(pickle.root(), "a"));
  REQUIRE(items.size() == 4);
  CHECK(pickle.integer(items[1]) == 300);
  CHECK(pickle.kind(items[2]) == Pickle::Kind::none);
  CHECK(pickle.items(items[3]).size() == 1);
  CHECK(pickle.text(*pickle.find(pickle.root(), "b")) == "a");
}

TEST_CASE("Opcodes that import, call or make objects are refused by name") {
  CHECK(refusal("\x80\x02"
                "cos\nsystem\n."s)
            .starts_with("GLOBAL"));
  CHECK(refusal("\x80\x04\x8c\x02os\x8c\x06system\x93."s).starts_with("STACK_GLOBAL"));
  CHECK(refusal("\x80\x02)R."s).starts_with("REDUCE"));
  CHECK(refusal("\x80\x02)\x81."s).starts_with("NEWOBJ"));
  CHECK(refusal("\x80\x02}b."s).starts_with("BUILD"));
  CHECK(refusal("\x80\x02\x82\x01."s).starts_with("EXT"));
  CHECK(refusal("\x80\x02Pxyz\n."s).starts_with("PERSID"));
  CHECK(refusal("\x80\x02I12\n."s) == "opcode 0x49");
}

TEST_CASE("Pickles that are cut, broken or newer are refused") {
  CHECK_FALSE(refusal("\x80\x02"s).empty());
  CHECK_FALSE(refusal("\x80\x09N."s).empty());
  CHECK_FALSE(refusal("\x80\x02."s).empty());           // no value
  CHECK_FALSE(refusal("\x80\x02NN."s).empty());         // two
  CHECK_FALSE(refusal("\x80\x02(N."s).empty());         // an open mark
  CHECK_FALSE(refusal("\x80\x02N\x85\x86."s).empty());  // a tuple of more than there is
  CHECK_FALSE(refusal("\x80\x02}Ne."s).empty());        // no mark
  CHECK_FALSE(refusal("\x80\x02}(Nu."s).empty());       // a key without a value
  CHECK_FALSE(refusal("\x80\x02]NNs."s).empty());       // a list is no dictionary
  CHECK_FALSE(refusal("\x80\x02h\x03."s).empty());      // not in the memo
  CHECK_FALSE(refusal("\x80\x02X\xff\xff\xff\x7fshort."s).empty());
  CHECK_FALSE(refusal("\x80\x02r\xff\xff\xff\xff."s).empty());
}

TEST_CASE("A list that holds itself is read and does no harm") {
  const std::string bytes =
      "\x80\x02]q\x00h\x00"
      "a."s;
  const Pickle pickle = Pickle::parse(bytes, "x.pickle");
  REQUIRE(pickle.items(pickle.root()).size() == 1);
  CHECK(pickle.items(pickle.root()).front() == pickle.root());
}

TEST_CASE("Walking a snapshot's history back finds the peaks of its time") {
  const Measurement run = *measure(snapshot([](PickleWriter& out) {
    event(out, "segment_alloc", 2097152);
    event(out, "alloc", 1000);  // 1024 in blocks of 512
    event(out, "segment_alloc", 20971520);
    event(out, "alloc", 10000000);
    event(out, "free_requested", 10000000);
    event(out, "free_completed", 10000000);
    event(out, "segment_free", 20971520);
  }));
  CHECK(value_of(run, Metric::peak_allocated_bytes) == Approx(1024.0 + 10000384.0));
  CHECK(value_of(run, Metric::peak_reserved_bytes) == Approx(2097152.0 + 20971520.0));
  CHECK(notes_have(run, "7 events of history, from the first allocation on"));
}

TEST_CASE("A history that begins late says what was held before it") {
  const Measurement run =
      *measure(snapshot([](PickleWriter& out) { event(out, "free_requested", 4096); }));
  CHECK(value_of(run, Metric::peak_allocated_bytes) == Approx(1024.0 + 4096.0));
  CHECK(notes_have(run, "begins with 0.00 GiB allocated"));
}

TEST_CASE(
    "A snapshot with an event of memory that ran out does not fit; one without history has no "
    "peak") {
  CHECK_FALSE(
      measure(snapshot([](PickleWriter& out) { event(out, "oom", 4096); }))->measured.fits());
  CHECK_FALSE(measure(snapshot([](PickleWriter&) {})));
}

TEST_CASE("A pickle of other data is no snapshot") {
  CHECK_THROWS_AS(measure("\x80\x02}."s), InputError);
}
