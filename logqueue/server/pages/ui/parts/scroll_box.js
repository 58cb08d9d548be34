// A box around what may be wider than its place: it scrolls, by keys too.

import {html, useEffect, useRef} from "../vendor/htm-preact.js";

/** @param {object} props of the element around the children; class: "table-box" by default */
export function ScrollBox({children, ...props}) {
  const element = useRef(null);
  useEffect(() => {
    const box = element.current;
    const look = () => {
      // Only a box that hides something takes the focus.
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    };
    const observer = new ResizeObserver(look);
    observer.observe(box);
    if (box.firstElementChild) observer.observe(box.firstElementChild);
    return () => observer.disconnect();
  }, []);
  return html`<div ref=${element} class="table-box" ...${props}>${children}</div>`;
}
