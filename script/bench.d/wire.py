"""A client of PostgreSQL's protocol, large enough for single statements: trust, simple Query, text results, TLS."""

import socket
import ssl
import struct

SSL_REQUEST = struct.pack("!ii", 8, 80877103)


class Client:
    """One connection. Not for use by two threads."""

    def __init__(self, port, user="postgres", database="postgres", tls=False):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self._encrypt()
        self.buffer = bytearray()
        parameters = b"user\0%b\0database\0%b\0\0" % (user.encode(), database.encode())
        self.socket.sendall(struct.pack("!ii", len(parameters) + 8, 196608) + parameters)
        self._until_ready()

    def rows(self, text):
        """Runs one statement; its rows as the bytes of their DataRow messages."""
        body = text.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        return self._until_ready()

    def query(self, text):
        """Runs one statement; the first column of its first row as text, or None."""
        rows = self.rows(text)
        size = struct.unpack_from("!i", rows[0], 2)[0] if rows else -1
        return rows[0][6 : 6 + size].decode() if size >= 0 else None

    def close(self):
        self.socket.close()

    def _encrypt(self):
        self.socket.sendall(SSL_REQUEST)
        if self.socket.recv(1) != b"S":
            raise RuntimeError("the server offers no TLS")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.socket = context.wrap_socket(self.socket)

    def _frame(self):
        while True:
            if len(self.buffer) >= 5:
                size = 1 + struct.unpack_from("!i", self.buffer, 1)[0]
                if len(self.buffer) >= size:
                    tag, body = self.buffer[0:1], bytes(self.buffer[5:size])
                    del self.buffer[:size]
                    return bytes(tag), body
            received = self.socket.recv(65536)
            if not received:
                raise ConnectionError("the server closed the connection")
            self.buffer += received

    def _until_ready(self):
        rows = []
        while True:
            tag, body = self._frame()
            if tag == b"D":
                rows.append(body)
            elif tag == b"E":
                raise RuntimeError(body.replace(b"\0", b" ").decode(errors="replace"))
            elif tag == b"R" and body[:4] != b"\0\0\0\0":
                raise RuntimeError("the server asks for a password; this client knows trust alone")
            elif tag == b"Z":
                return rows
