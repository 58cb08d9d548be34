// Writing one record by hand.

import {html, useState} from "../vendor/htm-preact.js";
import {api, apiPath} from "../api.js";
import {count} from "../format.js";
import {Dialog} from "../parts/dialog.js";
import {checkJson, JsonEditor} from "../parts/json_editor.js";
import {notify, notifyError} from "../parts/notices.js";

/** What was typed last, by topic: an error, Esc or another page loses nothing. */
const drafts = new Map();

/** @param {{topic: string, onClose: () => void}} props */
export function AppendDialog({topic, onClose}) {
  const [draft, setDraft] = useState(() => drafts.get(topic) ?? {text: "{\n  \n}", tag: "", node: ""});
  const [isSending, setSending] = useState(false);
  const change = (changes) => {
    const next = {...draft, ...changes};
    drafts.set(topic, next);
    setDraft(next);
  };
  const check = checkJson(draft.text);
  const send = async (event) => {
    event.preventDefault();
    if (check.error !== null || isSending) return;
    setSending(true);
    const record = {data: check.value};
    if (draft.tag !== "") record.tag = draft.tag;
    if (draft.node !== "") record.node = draft.node;
    try {
      const reply = await api.post(apiPath("topics", topic), {records: [record]});
      notify(`Record ${count(Number(reply.first_seq))} appended to ${topic}`);
      onClose();
    } catch (error) {
      notifyError(error, "Not appended");
    }
    setSending(false);
  };
  const input = (name) => (event) => change({[name]: event.target.value});
  return html`<${Dialog} title=${`Append a record to ${topic}`} wide onClose=${onClose}>
    <form onSubmit=${send}>
      <${JsonEditor} label="Data" rows=${12} autofocus value=${draft.text} onChange=${(text) => change({text})} />
      <div class="fields">
        <label class="field"
          ><span>Tag</span
          ><input value=${draft.tag} onInput=${input("tag")} autocomplete="off" spellcheck=${false} />
          <small class="soft">To filter and delete by</small></label
        >
        <label class="field"
          ><span>Node</span
          ><input value=${draft.node} onInput=${input("node")} autocomplete="off" spellcheck=${false} />
          <small class="soft">Who writes it</small></label
        >
      </div>
      <div class="dialog-actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${check.error !== null || isSending}>
          ${isSending ? "Appending…" : "Append the record"}
        </button>
      </div>
    </form>
  <//>`;
}
