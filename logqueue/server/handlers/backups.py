"""Handler of the download of a backup."""

from __future__ import annotations

from logqueue.errors import Internal, Throttled
from logqueue.server.backup import Backup, folder_name
from logqueue.server.engine.background import leases_flushed
from logqueue.server.handlers.whole_log import require_everything
from logqueue.server.http.requests import Answer, Download, HttpRequest
from logqueue.server.http.routing import serves
from logqueue.server.service import Service
from logqueue.server.storage.snapshot import SnapshotFailed, SnapshotFile, take_snapshot
from logqueue.server.storage.tar_image import TarImage
from wal import WalCorrupt

TAR_TYPE = (b"content-type", b"application/x-tar")


class BackupRoutes:
    """Backups of a running server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._is_beginning = False

    @serves("backup")
    def backup(self, request: HttpRequest) -> Answer:
        """`GET /v0/backup`: both logs as they are now, as a tar archive."""
        self._service.require_serving()
        require_everything(request.key)
        return self._begin()

    async def _begin(self) -> Download:
        service = self._service
        if self._is_beginning or service.backup is not None:
            raise Throttled("a backup is being downloaded already: try again when it is done")
        self._is_beginning = True
        try:
            files = await self._snapshot()
            try:
                backup, name = self._backup_of(files)
            except BaseException:
                for file in files:
                    file.close()
                raise
        finally:
            self._is_beginning = False
        service.backup = backup
        stepping = service.stepping

        async def read(length: int, offset: int) -> bytes:
            backup.require_space()
            return await stepping.call(lambda: backup.read(length, offset))

        headers = (
            (b"content-disposition", f'attachment; filename="{name}.tar"'.encode()),
            (b"cache-control", b"no-store"),
        )
        return Download(200, TAR_TYPE, headers, 0, backup.total_bytes, read, backup.close)

    async def _snapshot(self) -> list[SnapshotFile]:
        service = self._service
        journal = service.require_serving().engine.journal
        if service.lifecycle.following is None:
            # What was answered of leases may still be in a buffer.
            await leases_flushed(journal)
        try:
            return await service.stepping.run(take_snapshot(journal.fs, service.settings.data_dir))
        except SnapshotFailed as problem:
            raise Throttled(f"no backup can be made now: {problem}") from problem
        except WalCorrupt as damage:
            raise Internal(f"no backup can be made: {damage}") from damage

    def _backup_of(self, files: list[SnapshotFile]) -> tuple[Backup, str]:
        service = self._service
        engine = service.require_serving().engine
        now = engine.clock.now_ms()
        stats = engine.journal.jobs.stats
        name = folder_name(now)

        def over() -> None:
            service.backup = None

        return Backup(TarImage(files, name, now // 1000), now, lambda: stats.refused, over), name
