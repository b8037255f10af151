// Who types a command.
//
// Threads: call it on one thread.
#ifndef TRAINCHECK_CTL_TEXT_WHO_H_
#define TRAINCHECK_CTL_TEXT_WHO_H_

#include <string>

namespace traincheck::ctl {

// "alice@node7", printable; where no name is known, the user's number.
// For people who read it later: nobody checks it.
std::string UserAtHost();

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_WHO_H_
