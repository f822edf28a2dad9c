// The AI SDK's chat without a framework: what `useChat` is, but for React.

import { AbstractChat } from "ai";

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => (this.messages = [...this.messages, message]);
  popMessage = () => (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => (this.messages = this.messages.with(index, message));
  snapshot = structuredClone;
}

export class Chat extends AbstractChat {
  constructor(options) {
    super({ ...options, state: new State() });
  }
}
