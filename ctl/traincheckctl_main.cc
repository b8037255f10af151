#include "ctl/commands/command_line.h"

int main(int argc, char** argv) {
  return traincheck::ctl::RunCommandLine(argc, argv);
}
