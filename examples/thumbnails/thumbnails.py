"""Thumbnails, made by workers. `python thumbnails.py FOLDER COUNT` draws and queues images."""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw, UnidentifiedImageError

from logqueue import App, Reject, Retry

app = App()
app.queue("thumbnails", max_deliveries=10, dead_letter="thumbnails.dead")


@app.task(queue="thumbnails", retry=Retry(max_attempts=5), timeout=60, concurrency=4)
def make_thumbnail(src: str, size: int) -> None:
    """Write the thumbnail of an image beside it."""
    path = Path(src)
    target = path.with_name(f"{path.stem}.thumbnail.png")
    try:
        with Image.open(path) as image:
            image.thumbnail((size, size))
            # Another run may be reading: the name appears with the whole file.
            draft = target.with_suffix(".part")
            image.save(draft, format="PNG")
    except UnidentifiedImageError as error:
        raise Reject(f"{path.name} is no image") from error
    draft.replace(target)


def draw(path: Path, number: int) -> None:
    """Draw an image; each number gives another one."""
    image = Image.new("RGB", (800, 600), ((number * 53) % 256, (number * 97) % 256, 128))
    corner = (number * 37) % 400
    ImageDraw.Draw(image).ellipse((corner, 100, corner + 300, 400), fill=(255, 255, 255))
    image.save(path)


def main(folder: Path, count: int) -> None:
    """Draw images and queue a job for each."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"image-{number:03}.png" for number in range(count)]
    for number, path in enumerate(paths):
        draw(path, number)
    seqs = app.send_many(make_thumbnail.message(str(path), size=128) for path in paths)
    print(f"queued {len(seqs)} jobs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
