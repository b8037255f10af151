#include "server/metrics/http_exchange.h"

#include <boost/beast/http/verb.hpp>
#include <string>
#include <utility>

namespace traincheck::server {
namespace {

namespace http = boost::beast::http;

constexpr unsigned kHttp11 = 11;

// HEAD is answered as GET, without the body (ReplyTo).
HttpAnswer AnswerTo(const HttpParser::value_type& request,
                    const HttpServer::Handler& handler) {
  if (request.method() != http::verb::get &&
      request.method() != http::verb::head) {
    return {.status = 405, .body = "only GET is answered\n"};
  }
  const std::string target(request.target());
  return handler(target.substr(0, target.find('?')));
}

HttpReply Reply(HttpAnswer answer, unsigned version, bool keep) {
  HttpReply reply;
  reply.keep = keep;
  HttpResponse& response = reply.response;
  response = HttpResponse(http::int_to_status(answer.status), version);
  response.set(http::field::content_type, answer.content_type);
  // A proxy in between would show a probe the health of a while ago.
  response.set(http::field::cache_control, "no-store");
  response.keep_alive(keep);
  response.body() = std::move(answer.body);
  response.prepare_payload();
  return reply;
}

}  // namespace

void LimitRequest(HttpParser* parser) {
  parser->header_limit(kMaxHttpHead);
  // What is asked for here needs no body, so none is taken in.
  parser->body_limit(0);
}

HttpReply ReplyTo(const HttpParser& parser,
                  const HttpServer::Handler& handler) {
  const auto& request = parser.get();
  HttpReply reply = Reply(AnswerTo(request, handler), request.version(),
                          request.keep_alive());
  // The head says how long the body would be.
  if (request.method() == http::verb::head) reply.response.body().clear();
  return reply;
}

// The connection ends behind it: where the next request begins is not known.
HttpReply RefusalOfRequest() {
  return Reply({.status = 400, .body = "that is not a GET request\n"}, kHttp11,
               /*keep=*/false);
}

}  // namespace traincheck::server
