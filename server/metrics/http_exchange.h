// A request of HTTP/1.1 and its answer, without transport: what a connection
// takes, and what it says to it.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_METRICS_HTTP_EXCHANGE_H_
#define TRAINCHECK_SERVER_METRICS_HTTP_EXCHANGE_H_

#include <boost/beast/core/error.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>

#include "server/metrics/http_server.h"

namespace traincheck::server {

using HttpParser =
    boost::beast::http::request_parser<boost::beast::http::empty_body>;
using HttpResponse =
    boost::beast::http::response<boost::beast::http::string_body>;

inline constexpr size_t kMaxHttpHead = 8 << 10;
// Of what has come and is not parsed yet.
inline constexpr size_t kMaxHttpBuffer = 2 * kMaxHttpHead;

// For the next request of a connection.
void LimitRequest(HttpParser* parser);

struct HttpReply {
  HttpResponse response;
  bool keep = false;  // may the connection ask again?
};

// The answer to what was parsed.
HttpReply ReplyTo(const HttpParser& parser, const HttpServer::Handler& handler);
// To what is not a request that is taken here.
HttpReply RefusalOfRequest();

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_METRICS_HTTP_EXCHANGE_H_
