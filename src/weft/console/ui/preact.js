// The one place that names the vendored files. `html` is JSX as a template string; text in it becomes text nodes.
export {
  Component,
  createContext,
  h,
  html,
  render,
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/htm-3.1.1/standalone.module.js";
