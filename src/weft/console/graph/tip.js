// What lies under the pointer, in words, where the drawing is too small for them.

import { formatCount } from "../ui/time.js";
import { STATES, STATE_COUNT } from "./palette.js";
import { GRID } from "./scene.js";
import { statesInWords } from "./speech.js";

const DISTANCE = 14;

export class Tip {
  constructor() {
    this.element = document.createElement("div");
    this.element.className = "weft-graph-tip";
    this.element.hidden = true;
    this.name = document.createElement("b");
    this.text = document.createElement("span");
    this.element.append(this.name, this.text);
  }

  /**
   * @param {import("./board.js").Board} board
   * @param {{item: number, node: number}} hit
   * @param {number} x
   * @param {number} y
   * @param {{width: number, height: number}} room
   * @param {boolean} isReadable the card itself shows id and state
   */
  show(board, { item, node }, x, y, { width, height }, isReadable) {
    const { scene } = board;
    if (scene === null) return;
    if (node >= 0) {
      const { text, word } = STATES[board.states[node]];
      this.name.textContent = board.ids[node];
      const handler = board.handlers[board.handler[node]] ?? "";
      this.text.textContent = board.hasStates ? `${text} ${word} · ${handler}` : handler;
      const isShort = board.ids[node].length * 8 < scene.cardWidth - 42;
      if (isReadable && isShort) {
        this.hide();
        return;
      }
    } else {
      const many = scene.start[item + 1] - scene.start[item];
      const what = scene.kind[item] === GRID ? "press to collapse" : "double-click to expand";
      this.name.textContent = `${board.itemNames[item]} × ${formatCount(many)}`;
      const states = statesInWords(board.itemCounts.subarray(item * STATE_COUNT, (item + 1) * STATE_COUNT));
      this.text.textContent = board.hasStates ? `${states} · ${what}` : what;
    }
    this.element.hidden = false;
    const { offsetWidth, offsetHeight } = this.element;
    const left = x + DISTANCE + offsetWidth > width ? x - DISTANCE - offsetWidth : x + DISTANCE;
    const top = y + DISTANCE + offsetHeight > height ? y - DISTANCE - offsetHeight : y + DISTANCE;
    this.element.style.left = `${Math.max(0, left)}px`;
    this.element.style.top = `${Math.max(0, top)}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}
