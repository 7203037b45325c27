// Types of standalone.module.js, as far as the console uses it. This file is ours; the others are as they came:
// standalone.module.js and LICENSE from the npm package htm 3.1.1 (folder preact/), LICENSE-preact from preact,
// which standalone.module.js contains.
export type Child = any;
export function html(strings: TemplateStringsArray, ...values: any[]): any;
export function h(type: any, props?: any, ...children: any[]): any;
export function render(tree: any, parent: Element): void;
export class Component<P = any, S = any> {
  constructor(props?: P);
  props: P;
  state: S;
  setState(change: Partial<S> | ((state: S) => Partial<S>), done?: () => void): void;
  render(props?: P, state?: S): any;
}
export function createContext<T>(value: T): { Provider: any; Consumer: any };
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((previous: T) => T)) => void];
export function useReducer<S, A>(reducer: (state: S, action: A) => S, initial: S): [S, (action: A) => void];
export function useEffect(effect: () => void | (() => void), inputs?: readonly any[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly any[]): void;
export function useRef<T>(initial: T): { current: T };
export function useMemo<T>(make: () => T, inputs?: readonly any[]): T;
export function useCallback<T extends Function>(callback: T, inputs?: readonly any[]): T;
export function useContext<T>(context: { Provider: any; Consumer: any }): T;
export function useErrorBoundary(callback?: (error: any) => void): [any, () => void];
