// A list of any length that draws only the rows in sight. Rows have one height.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";

/**
 * Return which rows are drawn: those in sight, and some on either side.
 * @param {{top: number, height: number, rowHeight: number, count: number, spare?: number}} view
 * @returns {[number, number]} from, and up to
 */
export function rowsInSight({ top, height, rowHeight, count, spare = 8 }) {
  const from = Math.max(0, Math.floor(top / rowHeight) - spare);
  return [Math.min(from, count), Math.min(count, Math.ceil((top + height) / rowHeight) + spare)];
}

// Browsers cut elements off at about 16 million pixels (Firefox); longer lists are scrolled in proportion.
const MAX_HEIGHT = 8_000_000;

/**
 * @param {{
 *   count: number, rowHeight: number, row: (index: number) => any, label: string, head?: any, foot?: any,
 *   onNearEnd?: () => void, shown?: number, follow?: boolean, onFollow?: (follows: boolean) => void, className?: string,
 *   role?: string,
 * }} props `shown`: this row is brought into sight when it changes; `follow`: stay at the end
 */
export function VirtualList({ count, rowHeight, row, label, head, foot, onNearEnd, shown, follow, onFollow, className = "", role = "table" }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const top = useRef(/** @type {HTMLElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 800 });
  const real = count * rowHeight;
  const height = Math.min(real, MAX_HEIGHT);
  const scale = height ? real / height : 1;
  const measure = () => {
    const element = box.current;
    if (!element) return;
    const next = { top: element.scrollTop * scale, height: element.clientHeight };
    setView((old) => (Math.abs(old.top - next.top) < 1 && old.height === next.height ? old : next));
  };
  useEffect(() => {
    const watcher = new ResizeObserver(measure);
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [follow, count]);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null || shown === undefined || shown < 0) return;
    const headHeight = top.current?.offsetHeight ?? 0;
    const at = (shown * rowHeight) / scale;
    if (at < element.scrollTop) element.scrollTop = at;
    else if (at + rowHeight > element.scrollTop + element.clientHeight - headHeight) {
      element.scrollTop = at + rowHeight - element.clientHeight + headHeight;
    }
  }, [shown]);
  const [from, until] = rowsInSight({ ...view, rowHeight, count });
  useEffect(() => {
    if (onNearEnd && until >= count - 5) onNearEnd();
  }, [until, count, onNearEnd]);
  const onScroll = () => {
    measure();
    const element = box.current;
    if (element && onFollow) onFollow(element.scrollTop + element.clientHeight >= element.scrollHeight - rowHeight);
  };
  const isTable = role === "table";
  const rows = [];
  for (let i = from; i < until; i++) rows.push(row(i));
  const offset = scale === 1 ? from * rowHeight : view.top / scale - (view.top - from * rowHeight);
  return html`<div class=${`virtual ${className}`} ref=${box} onScroll=${onScroll} role=${role} aria-label=${label} aria-rowcount=${isTable ? count : null} tabindex="0">
    ${head && html`<div class="virtual-head" ref=${top} role="rowgroup">${head}</div>`}
    <div class="virtual-space" role=${isTable ? "rowgroup" : null} style=${{ height: `${height}px` }}>
      <div class="virtual-rows" role=${isTable ? "presentation" : null} style=${{ transform: `translateY(${offset}px)` }}>${rows}</div>
    </div>
    ${foot}
  </div>`;
}
