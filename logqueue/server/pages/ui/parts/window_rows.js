// Which rows of a long list are near the screen: only those are drawn.

import {useEffect, useLayoutEffect, useRef, useState} from "../vendor/htm-preact.js";

const MARGIN_PX = 400;

/**
 * @param {number} count rows in all
 * @param {number} rowHeight in pixels
 * @returns {[any, number, number]} a ref for the element that has the rows, the first row to draw
 *   and the one behind the last
 */
export function useWindow(count, rowHeight) {
  const element = useRef(null);
  const [range, setRange] = useState([0, Math.ceil((2 * MARGIN_PX + 800) / rowHeight)]);
  const measure = () => {
    if (element.current === null) return;
    const top = element.current.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor((-top - MARGIN_PX) / rowHeight));
    const last = Math.ceil((innerHeight - top + MARGIN_PX) / rowHeight);
    // In steps, so that scrolling by a row does not draw all of them again.
    const from = first - (first % 8);
    const to = last + (8 - (last % 8));
    setRange((known) => (known[0] === from && known[1] === to ? known : [from, to]));
  };
  useLayoutEffect(measure, [count]);
  useEffect(() => {
    let frame = 0;
    const onScroll = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(measure);
    };
    addEventListener("scroll", onScroll, {passive: true, capture: true});
    addEventListener("resize", onScroll);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", onScroll, {capture: true});
      removeEventListener("resize", onScroll);
    };
  }, []);
  const from = Math.min(range[0], Math.max(0, count - 1));
  return [element, from, Math.max(from, Math.min(range[1], count))];
}

/** Keep a row in view that is chosen by key; rows that are not drawn are found by their height. */
export function scrollToRow(element, index, rowHeight) {
  if (element === null) return;
  const top = element.getBoundingClientRect().top + index * rowHeight;
  const head = 100;
  if (top < head) scrollBy({top: top - head});
  else if (top + rowHeight > innerHeight - 40) scrollBy({top: top + rowHeight - innerHeight + 40});
}
