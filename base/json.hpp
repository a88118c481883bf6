// A JSON value, and reading and writing it.
//
// The only header about JSON: the parser library stays inside json.cpp. Differences from a plain
// DOM, all because users' files need them: members keep their order, each value knows its line and
// column for messages, duplicate keys are remembered, integers are kept apart from real numbers,
// and depth is limited.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace zeroplan {

struct Diagnostic;

class Json {
 public:
  enum class Type { null, boolean, integer, real, string, array, object };
  using Member = std::pair<std::string, Json>;

  Json() = default;
  Json(const Json& other);
  Json(Json&& other) noexcept = default;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept = default;
  ~Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : Json(static_cast<std::int64_t>(value)) {}
  Json(std::int64_t value) : value_(value) {}
  Json(std::size_t value) : Json(static_cast<std::int64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : Json(std::string(value)) {}

  static Json array(std::vector<Json> items = {});
  static Json object(std::initializer_list<Member> members = {});

  Type type() const { return static_cast<Type>(value_.index()); }
  bool is_null() const { return type() == Type::null; }
  bool is_boolean() const { return type() == Type::boolean; }
  bool is_integer() const { return type() == Type::integer; }
  bool is_number() const { return is_integer() || type() == Type::real; }
  bool is_string() const { return type() == Type::string; }
  bool is_array() const { return type() == Type::array; }
  bool is_object() const { return type() == Type::object; }

  // Readers. Precondition: the type fits (as_number takes integers too).
  bool as_boolean() const;
  std::int64_t as_integer() const;
  double as_number() const;
  const std::string& as_string() const;

  // Items of an array, members of an object; empty for every other type.
  const std::vector<Json>& items() const;
  const std::vector<Member>& members() const;
  // The same to be changed; of another type nothing is kept.
  std::vector<Json>& items();
  std::vector<Member>& members();

  // The member of that name, or null. With duplicate keys the last one counts, as in Python.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  // The member of that name, made (and a null turned into an object) where it is missing.
  Json& operator[](std::string_view key);
  void push_back(Json item);
  bool erase(std::string_view key);

  // Where the value stands in its source: 1-based, 0 for a value made by the program.
  int line() const { return line_; }
  int column() const { return column_; }
  void set_position(int line, int column);

  // Equal values: order of members and positions do not count, 1 equals 1.0.
  friend bool operator==(const Json& a, const Json& b);

  // One line when indent < 0. Real numbers print the shortest form that reads back the same.
  std::string dump(int indent = -1) const;

 private:
  using Items = std::vector<Json>;
  using Members = std::vector<Member>;
  // In the order of Type. One of them, because documents of a million values are read.
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Items, Members> value_;
  int line_ = 0;
  int column_ = 0;
};

// How many values (items, members, and what holds them) a document may have. Each takes up to 250
// bytes while it is read, so this is what bounds the memory that a document costs.
inline constexpr std::int64_t kMostValues = 500'000;
// Of files that programs write with very many: headers of weights, recordings of engines. Fifty
// times the largest recording there is, and 16 MiB of them read within 300 MB.
inline constexpr std::int64_t kMostRecordedValues = 4'000'000;
// Of traces and snapshots of a gigabyte. Theirs are longer than this many bytes each.
inline constexpr std::int64_t kMostTracedValues = 50'000'000;
inline constexpr std::int64_t kTracedValueBytes = 4;

struct JsonOptions {
  bool comments = true;         // // and /* */ are skipped
  bool trailing_commas = true;  // [1, 2,] is read as [1, 2]
  int max_depth = 64;           // nested deeper is an error
  int first_line = 1;           // of the text within its file, for messages
  std::int64_t max_values = kMostValues;
};

// A key that stands twice in one object.
struct DuplicateKey {
  std::string pointer;  // of the second one
  int line = 0;
};

struct JsonDocument {
  std::string file;  // for messages
  Json root;
  std::vector<DuplicateKey> duplicates;
  bool had_comments = false;
  bool had_trailing_commas = false;
};

// Reads text. Throws InputError with line, column and a hint (an empty file, a placeholder such as
// CONFIG_BATCH_SIZE, a missing comma, NaN, a file that is no text, nesting too deep, too many
// values, a key longer than 4 KiB). Of keys that stand twice the first hundred are remembered.
JsonDocument parse_json(std::string_view text, const std::string& file, const JsonOptions& = {});

// Reads a file or pipe of at most `max_bytes` (a device: at most 16 MiB). Throws InputError also
// for a directory, a missing file (with the nearest name in its folder), one that may not be read,
// and a pipe that nobody writes to.
std::string read_text_file(const std::string& path, std::int64_t max_bytes = 16 << 20);
JsonDocument read_json_file(const std::string& path, const JsonOptions& = {});

// A diagnostic for each key that stands twice in one object. DeepSpeed and zeroplan's own documents
// take none; Python's json takes the last, so a model's config.json may have them.
std::vector<Diagnostic> duplicate_key_problems(const JsonDocument& document);

// "a/b~c" as a token of a JSON pointer.
std::string pointer_token(std::string_view key);

}  // namespace zeroplan
