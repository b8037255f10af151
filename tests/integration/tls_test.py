"""Which versions and ciphers of TLS the daemon takes, and which our client speaks.

The other end is OpenSSL's own client, or Python's server.
"""

import os
import re
import socket
import ssl
import subprocess
import threading
import unittest

import harness
import hosts_test

# OpenSSL's client refuses by itself what Debian's defaults leave out; here the
# daemon shall.
_ANY = "ALL:@SECLEVEL=0"


class Daemon(hosts_test.HostsCase):
    def shake_hands(self, *options: str) -> str:
        """What OpenSSL's client says of a handshake with these options."""
        command = ["openssl", "s_client", "-connect", self.daemon.address]
        command += ["-CAfile", self.certs / "ca.pem", "-verify_return_error"]
        command += ["-alpn", "h2", *options]
        done = subprocess.run(
            [*map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=harness.PATIENCE_S,
        )
        return done.stdout.decode(errors="replace")

    def assert_taken(self, said: str, version: str, cipher: str) -> None:
        self.assertRegex(said, rf"New, {version}, Cipher is {cipher}\n")
        self.assertIn("Verification: OK", said)

    def assert_refused(self, said: str) -> None:
        self.assertIn("Cipher is (NONE)", said)
        # By the daemon, which closes the connection: OpenSSL's client has offered it.
        self.assertRegex(said, "handshake has read 0 bytes and written [1-9]")

    def test_tls_1_3_is_what_a_client_gets_that_has_it(self):
        self.assert_taken(self.shake_hands(), r"TLSv1\.3", "TLS_AES_256_GCM_SHA384")

    def test_tls_1_2_has_authenticated_ciphers_alone(self):
        tls12 = self.shake_hands("-tls1_2")
        self.assert_taken(tls12, r"TLSv1\.2", r"ECDHE-ECDSA-\S*GCM\S*")
        ciphers = harness.run_captured(
            ["openssl", "ciphers", "-s", "-tls1_2", _ANY], dict(os.environ)
        ).stdout.strip()
        offered, taken = ciphers.split(":"), []
        self.assertIn("ECDHE-ECDSA-AES128-SHA", offered)
        while offered:
            # The daemon takes one of these until it takes none of the rest.
            suite = ":".join(offered) + ":@SECLEVEL=0"
            said = self.shake_hands("-tls1_2", "-cipher", suite)
            found = re.search(r"New, \S+, Cipher is (\w\S+)\n", said)
            if not found:
                self.assert_refused(said)
                break
            taken.append(found[1])
            offered.remove(found[1])
        self.assertTrue(taken)
        for cipher in taken:
            self.assertRegex(cipher, "^ECDHE-ECDSA-.*(GCM|POLY1305)", taken)

    def test_older_versions_are_refused(self):
        for version in ("-tls1", "-tls1_1"):
            with self.subTest(version):
                self.assert_refused(self.shake_hands(version, "-cipher", _ANY))


class Client(hosts_test.HostsCase):
    def test_it_speaks_tls_1_3_to_a_server_that_has_it(self):
        for newest, version in (
            (ssl.TLSVersion.TLSv1_3, "TLSv1.3"),
            (ssl.TLSVersion.TLSv1_2, "TLSv1.2"),
        ):
            with self.subTest(version):
                self.assertEqual(self.version_spoken_to(newest), version)

    def test_it_does_not_speak_tls_1_1(self):
        self.assertRegex(self.version_spoken_to(ssl.TLSVersion.TLSv1_1), "PROTOCOL")

    def version_spoken_to(self, newest: ssl.TLSVersion) -> str:
        """By traincheckctl, to a server in the daemon's place; or why not."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certs / "server.pem", self.certs / "server.key")
        context.set_alpn_protocols(["h2"])
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = newest
        context.set_ciphers(_ANY)
        said = []

        def serve(listener):
            connection, _ = listener.accept()
            try:
                with context.wrap_socket(connection, server_side=True) as peer:
                    said.append(peer.version())
            except ssl.SSLError as error:
                said.append(error.reason)

        with socket.create_server((hosts_test.DAEMON, 0)) as listener:
            server = threading.Thread(target=serve, args=(listener,))
            server.start()
            address = "%s:%d" % listener.getsockname()
            command = [harness.DIST / "traincheckctl", "--server", address]
            command += ["--tls-ca", self.certs / "ca.pem", "status"]
            harness.run_captured(command, harness.others_environment())
            server.join(harness.PATIENCE_S)
        return said[0]


if __name__ == "__main__":
    unittest.main()
