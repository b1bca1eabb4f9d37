// Values in the neutral form of ../values.py, to and from rhea's typed values; messages as lists
// of sections, encoded and decoded by rhea's own writer and reader.
'use strict';

const rhea = require('rhea');
const types = rhea.types;

// rhea's name of each encoding, and the type it is an encoding of.
const ENCODINGS = {
    Null: 'null', Boolean: 'boolean', True: 'boolean', False: 'boolean', Ubyte: 'ubyte',
    Ushort: 'ushort', Uint: 'uint', SmallUint: 'uint', Uint0: 'uint', Ulong: 'ulong',
    SmallUlong: 'ulong', Ulong0: 'ulong', Byte: 'byte', Short: 'short', Int: 'int', SmallInt: 'int',
    Long: 'long', SmallLong: 'long', Float: 'float', Double: 'double', Decimal32: 'decimal32',
    Decimal64: 'decimal64', Decimal128: 'decimal128', CharUTF32: 'char', Timestamp: 'timestamp',
    Uuid: 'uuid', Vbin8: 'binary', Vbin32: 'binary', Str8: 'string', Str32: 'string',
    Sym8: 'symbol', Sym32: 'symbol', List0: 'list', List8: 'list', List32: 'list', Map8: 'map',
    Map32: 'map', Array8: 'array', Array32: 'array',
};

// The encoding an array of each element type is written with.
const ELEMENTS = {
    ubyte: types.Ubyte, uint: types.Uint, long: types.Long, symbol: types.Sym32,
    string: types.Str32, double: types.Double, uuid: types.Uuid,
};

function hex(text) {
    return Buffer.from(text, 'hex');
}

function eight(digits) {
    const buffer = Buffer.alloc(8);
    buffer.writeBigInt64BE(BigInt.asIntN(64, BigInt(digits)));
    return buffer;
}

function to_rhea(value) {
    const [kind, content] = value;
    switch (kind) {
    case 'null': return types.Null();
    case 'boolean': return types.wrap_boolean(content);
    case 'ubyte': return types.wrap_ubyte(Number(content));
    case 'ushort': return types.wrap_ushort(Number(content));
    case 'uint': return types.wrap_uint(Number(content));
    case 'ulong': return types.wrap_ulong(eight(content));
    case 'byte': return types.wrap_byte(Number(content));
    case 'short': return types.wrap_short(Number(content));
    case 'int': return types.wrap_int(Number(content));
    case 'long': return types.wrap_long(eight(content));
    case 'timestamp': return types.wrap_timestamp(Number(content));
    case 'float': return types.wrap_float(hex(content).readFloatBE(0));
    case 'double': return types.wrap_double(hex(content).readDoubleBE(0));
    case 'decimal32': return types.Decimal32(hex(content));
    case 'decimal64': return types.Decimal64(hex(content));
    case 'decimal128': return types.Decimal128(hex(content));
    case 'char': return types.wrap_char(content);
    case 'uuid': return types.wrap_uuid(hex(content));
    case 'binary': return types.wrap_binary(hex(content));
    case 'string': return types.wrap_string(content);
    case 'symbol': return types.wrap_symbol(content);
    case 'list': return content.length ? types.List32(content.map(to_rhea)) : types.List0();
    case 'map': return types.Map32(content.flat().map(to_rhea));
    case 'array': {
        const items = value[2].map((item) => to_rhea(item).value);
        return types.wrap_array(items, ELEMENTS[content].typecode);
    }
    case 'described': return types.described(to_rhea(content), to_rhea(value[2]));
    }
    throw new Error('no such type: ' + kind);
}

function digits(value) {
    return Buffer.isBuffer(value) ? value.readBigInt64BE(0).toString() : String(value);
}

function float_bytes(width, method, value) {
    const buffer = Buffer.alloc(width);
    buffer[method](value, 0);
    return buffer.toString('hex');
}

function pairs(items) {
    const result = [];
    for (let i = 0; i < items.length; i += 2) {
        result.push([from_rhea(items[i]), from_rhea(items[i + 1])]);
    }
    return result;
}

function from_rhea(typed) {
    if (typed.descriptor) {
        const plain = types.by_code[typed.type.typecode].create(typed.value);
        plain.array_constructor = typed.array_constructor;
        return ['described', from_rhea(typed.descriptor), from_rhea(plain)];
    }
    const value = typed.value;
    const kind = ENCODINGS[typed.type.name];
    switch (kind) {
    case 'null': return ['null'];
    case 'boolean': return ['boolean', Boolean(value)];
    case 'ulong': {
        const text = Buffer.isBuffer(value) ? value.readBigUInt64BE(0).toString() : String(value);
        return [kind, text];
    }
    case 'long': return [kind, digits(value)];
    case 'timestamp': return [kind, String(value.getTime())];
    case 'float': return [kind, float_bytes(4, 'writeFloatBE', value)];
    case 'double': return [kind, float_bytes(8, 'writeDoubleBE', value)];
    case 'char': return [kind, value];
    case 'decimal32': case 'decimal64': case 'decimal128': case 'uuid': case 'binary':
        return [kind, value.toString('hex')];
    case 'string': case 'symbol': return [kind, value];
    case 'list': return [kind, value.map(from_rhea)];
    case 'map': return [kind, pairs(value)];
    case 'array': {
        const element = types.by_code[typed.array_constructor.typecode].name;
        return [kind, ENCODINGS[element], value.map(from_rhea)];
    }
    case undefined: throw new Error('no such encoding: ' + typed.type.name);
    default: return [kind, String(value)];
    }
}

function encode_sections(sections) {
    const writer = new types.Writer();
    for (const [code, content] of sections) {
        writer.write(types.described(types.wrap_ulong(code), to_rhea(content)));
    }
    return writer.toBuffer();
}

function decode_sections(buffer) {
    const reader = new types.Reader(buffer);
    const sections = [];
    while (reader.remaining()) {
        const [, descriptor, content] = from_rhea(reader.read());
        sections.push([Number(descriptor[1]), content]);
    }
    return sections;
}

module.exports = { to_rhea, from_rhea, encode_sections, decode_sections };
