// The files in which the daemon's own user finds an administrator's token: the
// first one that there is, and the one that a single user never sees.
//
//   DATA_DIR/admin.token            a daemon on any port
//   RUNTIME/loopback-PORT.token     one on loopback: clients of the same user
//                                   look there by themselves
//
// The token is another one after each start of the daemon.
//
// Threads: one thread.
#ifndef TRAINCHECK_SERVER_ACCESS_OWN_TOKEN_H_
#define TRAINCHECK_SERVER_ACCESS_OWN_TOKEN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace traincheck::server {

class OwnToken {
 public:
  // `address`: where the daemon listens, with its port. No file is for a
  // socket.
  OwnToken(const std::string& text, const std::string& data_dir,
           const std::string& address);
  // Removes what it has written.
  ~OwnToken();
  OwnToken(const OwnToken&) = delete;
  OwnToken& operator=(const OwnToken&) = delete;

  // Writes what is not written yet, every second at most: a disk may be full
  // for a while. To be called several times a second.
  void Tick(absl::Time now);

 private:
  absl::Status Write(const std::string& path) const;

  const std::string text_;
  std::vector<std::string> missing_;
  std::vector<std::string> written_;
  absl::Time next_try_ = absl::InfinitePast();
  absl::Status last_error_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ACCESS_OWN_TOKEN_H_
