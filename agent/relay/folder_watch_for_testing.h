// Counts how often a folder and the files in it are opened, by whomever.
#ifndef TRAINCHECK_AGENT_RELAY_FOLDER_WATCH_FOR_TESTING_H_
#define TRAINCHECK_AGENT_RELAY_FOLDER_WATCH_FOR_TESTING_H_

#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <string>

#include "agent/relay/unique_fd.h"

namespace traincheck::agent {

class FolderWatch {
 public:
  explicit FolderWatch(const std::string& folder)
      : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(inotify_add_watch(fd_.get(), folder.c_str(), IN_OPEN), 0);
  }

  struct Opened {
    int folder = 0;
    int files = 0;
  };
  // Since the last call. Equal events that follow each other are one.
  Opened TakeOpened() {
    Opened opened;
    alignas(inotify_event) char buffer[65536];
    ssize_t bytes = 0;
    while ((bytes = read(fd_.get(), buffer, sizeof buffer)) > 0) {
      for (char* at = buffer; at < buffer + bytes;) {
        const auto* event = reinterpret_cast<const inotify_event*>(at);
        ++((event->mask & IN_ISDIR) != 0 ? opened.folder : opened.files);
        at += sizeof *event + event->len;
      }
    }
    return opened;
  }

 private:
  UniqueFd fd_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_FOLDER_WATCH_FOR_TESTING_H_
