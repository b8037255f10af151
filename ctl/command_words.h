// What CLI11 does not say well: words that are not commands, and a training's
// command line without "--".
//
// Threads: pure.
#ifndef TRAINCHECK_CTL_COMMAND_WORDS_H_
#define TRAINCHECK_CTL_COMMAND_WORDS_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace traincheck::ctl {

// The command line up to "--", without the program's name.
using Words = std::vector<std::string>;

// "help COMMAND..." as "COMMAND... --help"; other words as they are.
Words WithoutHelpCommand(Words words);

// "": each word that stands where a command is expected is one, and none is
// missing. Else what is wrong and what was meant. `has_dashes`: there is a
// "--".
std::string WhatIsWrongWithCommand(const CLI::App& app, const Words& words,
                                   bool has_dashes);

// What the parser refused, in a sentence that says where help is. REQUIRES:
// `app` has parsed and thrown `error`.
std::string ParseErrorText(const CLI::App& app, const CLI::ParseError& error);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMAND_WORDS_H_
