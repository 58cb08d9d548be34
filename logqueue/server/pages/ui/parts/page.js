// A page: its title, where it is, what can be done.

import {html, useEffect} from "../vendor/htm-preact.js";

/**
 * @param {{title: string, crumbs?: [string, string][], actions?: any, children: any}} props
 *   crumbs: label and URL of the pages above this one
 */
export function Page({title, crumbs = [], actions, children}) {
  useEffect(() => {
    document.title = `${title} – logqueue`;
  }, [title]);
  return html`
    <div class="page">
      <div class="page-head">
        <div class="page-title">
          ${crumbs.length > 0 &&
          html`<nav class="crumbs" aria-label="Above this page">
            ${crumbs.map(([label, url]) => html`<a href=${url}><bdi>${label}</bdi></a>`)}
          </nav>`}
          <h1><bdi>${title}</bdi></h1>
        </div>
        ${actions && html`<div class="actions">${actions}</div>`}
      </div>
      ${children}
    </div>
  `;
}
