// Metrics as Prometheus reads them: text format 0.0.4. (Debian has
// prometheus-cpp as shared libraries only; the daemon is linked statically.)
//
//   Exposition text;
//   text.Family("traincheckd_streams", MetricType::kGauge, "Open streams");
//   text.Sample(3);
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_SERVER_METRICS_EXPOSITION_H_
#define TRAINCHECK_SERVER_METRICS_EXPOSITION_H_

#include <string>
#include <utility>
#include <vector>

namespace traincheck::server {

enum class MetricType { kCounter, kGauge, kSummary };

class Exposition {
 public:
  using Labels = std::vector<std::pair<const char*, std::string>>;

  // What follows are its samples. A counter's name ends in _total.
  void Family(const char* name, MetricType type, const char* help);
  // `suffix`: "_sum", "_count" of a summary.
  void Sample(double value, const Labels& labels = {}, const char* suffix = "");

  const std::string& text() const { return text_; }

 private:
  std::string name_;
  std::string text_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_METRICS_EXPOSITION_H_
