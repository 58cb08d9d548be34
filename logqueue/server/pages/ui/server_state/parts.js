// Bars and figures of the Server page.

import {html} from "../vendor/htm-preact.js";

/**
 * A bar of shares, with its parts in words below.
 * @param {{label: string, parts: {name: string, value: number, text: string, color: string}[]}} props
 */
export function StackedBar({label, parts}) {
  const total = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  const words = parts.map((part) => `${part.name} ${part.text}`).join(", ");
  return html`<div class="stacked" role="img" aria-label=${`${label}: ${words}`}>
    ${parts.map((part) => {
      const share = (100 * part.value) / total;
      if (share < 0.05) return null;
      return html`<i key=${part.name} class=${`fill--${part.color}`} title=${`${part.name}: ${part.text}`} style=${{width: `${share}%`}} />`;
    })}
  </div>`;
}

/** A thin bar in a table cell. @param {{share: number, kind?: string}} props share from 0 to 1 */
export function Meter({share, kind = ""}) {
  const width = Math.min(100, Math.max(0, 100 * share));
  return html`<span class="meter" aria-hidden="true">
    <i class=${kind} style=${{width: `${width > 0 ? Math.max(width, 1) : 0}%`}} />
  </span>`;
}

/**
 * Segments of a log as columns: each as high as it is full.
 * @param {{sizes: number[], max: number, label: string, newest: number}} props
 */
export function Segments({sizes, max, label, newest}) {
  const top = Math.max(max, ...sizes);
  return html`<div class="segments" role="img" aria-label=${label}>
    ${sizes.map((bytes, i) => {
      const number = newest - sizes.length + 1 + i;
      const height = Math.max(4, (100 * bytes) / top);
      const isActive = i === sizes.length - 1;
      return html`<i key=${number} class=${isActive ? "active" : ""} style=${{height: `${height}%`}} />`;
    })}
  </div>`;
}

/** Facts in words: rows without a value are left out. @param {{rows: [string, any][]}} props */
export function Words({rows}) {
  return html`<dl class="words">
    ${rows
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** @param {{title: string, aside?: any, children: any}} props */
export function Card({title, aside, children}) {
  return html`<section class="card" aria-label=${title}>
    <div class="card-head"><h2>${title}</h2>${aside}</div>
    ${children}
  </section>`;
}
