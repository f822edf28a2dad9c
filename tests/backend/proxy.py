"""A company's network: a proxy that connects to what it may, names that it alone knows, certificates of its own CA."""

import asyncio
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "backend.cursor.test"  # which no resolver knows


class CompanyNetwork:
    """`url` is that of a server in plain HTTP. It is reached at `https_url`, over HTTP/1.1, through `proxy` alone."""

    def __init__(self, url: str, folder: Path) -> None:
        self.ca = folder / "company-ca.pem"
        self.connected: list[str] = []  # what the proxy was asked for
        self.protocols: list[str | None] = []  # what was agreed on in TLS
        self.proxy = self.https_url = ""
        self._target = int(url.rpartition(":")[2])
        self._context = _context(folder, self.ca)
        self._loop = asyncio.new_event_loop()
        self._stop, self._ready = asyncio.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        tls = await asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=self._context)
        self._tls_port = tls.sockets[0].getsockname()[1]
        proxy = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.https_url = f"https://{HOST}"
        self.proxy = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        tls.close()
        proxy.close()
        open = asyncio.all_tasks() - {asyncio.current_task()}
        for task in open:
            task.cancel()
        await asyncio.gather(*open, return_exceptions=True)
        await asyncio.sleep(0.05)  # transports are closed a moment later

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.protocols.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await _joined(reader, writer, *await asyncio.open_connection("127.0.0.1", self._target))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        self.connected.append(f"{method} {target}")
        if method != "CONNECT" or target != f"{HOST}:443":
            writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            writer.close()
            return
        upstream = await asyncio.open_connection("127.0.0.1", self._tls_port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _joined(reader, writer, *upstream)


async def _joined(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    other_reader: asyncio.StreamReader,
    other_writer: asyncio.StreamWriter,
) -> None:
    await asyncio.gather(_copied(reader, other_writer), _copied(other_reader, writer), return_exceptions=True)


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def _context(folder: Path, ca: Path) -> ssl.SSLContext:
    """A server's, with a certificate of a CA that nobody else knows."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Company")])
    authority = _certificate(name, name, key.public_key(), key, x509.BasicConstraints(ca=True, path_length=None))
    own = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName(HOST)])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    certificate = _certificate(subject, name, own.public_key(), key, names)
    pem = serialization.Encoding.PEM
    ca.write_bytes(authority.public_bytes(pem))
    chain, secret = folder / "server.pem", folder / "server.key"
    chain.write_bytes(certificate.public_bytes(pem))
    plain = serialization.NoEncryption()
    secret.write_bytes(own.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, secret)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
    dated = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    return dated.add_extension(extension, critical=True).sign(signer, hashes.SHA256())
