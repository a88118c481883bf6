// What commands print, made safe where it leaves the program: names, keys and log lines of users'
// files may hold anything, and everything they are printed in passes here.
#pragma once

#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>

namespace zeroplan::cli {

// Stands between a stream and where it writes: characters that steer a terminal (is_steering) come
// out as \x1b or \u202e, bytes that are no UTF-8 as \xff; line breaks and tabs stay. JSON passes
// unchanged, for it has none of them (Json::dump). Who means to steer, as a progress bar does,
// writes to the terminal itself. Several threads may write.
class TerminalText : public std::streambuf {
 public:
  explicit TerminalText(std::ostream& stream);
  ~TerminalText() override;  // the stream writes by itself again
  TerminalText(const TerminalText&) = delete;
  TerminalText& operator=(const TerminalText&) = delete;

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  bool write(std::string_view text);  // the rest of a cut character waits in cut_
  bool put(std::string_view text);

  std::ostream& stream_;
  std::streambuf* target_;
  std::mutex mutex_;
  std::string cut_;  // the beginning of a character whose other bytes have not come yet
};

}  // namespace zeroplan::cli
